package runner

import (
	"fmt"

	"github.com/evalrun/evalrun/eval"
	"github.com/evalrun/evalrun/internal/agent"
	"github.com/evalrun/evalrun/internal/input"
)

// promptCheck finds names in the prompts of agents that the inputs of an evaluation do not have, and
// files that cannot be sent. Each is reported once.
type promptCheck struct {
	dir    string
	agents []agent.Entry
	seen   map[string]bool
}

func (e *EvalSet) newPromptCheck() *promptCheck {
	c := &promptCheck{dir: e.req.BaseDir, seen: map[string]bool{}}
	if e.opts.Inputs == nil { // otherwise the inputs are not those of the file
		c.agents = e.req.Agents
	}
	return c
}

// missing says what an evaluation lacks; empty if nothing, or if the same was said before.
func (c *promptCheck) missing(one eval.Evaluation) string {
	for _, a := range c.agents {
		name := a.Lacks(one.Inputs)
		if c.isNew(a.Name, name) {
			return fmt.Sprintf("the prompt of the agent %s names {{%s}}, which the inputs of the evaluation %q do not have",
				a.Name, name, one.ID)
		}
		if name != "" {
			continue
		}
		if _, err := a.Sends(one.Inputs, c.dir); err != nil && c.isNew(a.Name, err.Error()) {
			return fmt.Sprintf("the agent %s cannot send a file to its model for the evaluation %q: %v", a.Name, one.ID, err)
		}
	}
	return ""
}

// isNew reports whether something is to be said of an agent for the first time.
func (c *promptCheck) isNew(agent, what string) bool {
	key := agent + "\x00" + what
	isNew := what != "" && !c.seen[key]
	c.seen[key] = true
	return isNew
}

// inputsNode returns the inputs of an evaluation as they stand in the file of the set, or else the
// nearest node around them.
func inputsNode(set *eval.Set, id string) *input.Node {
	n := evaluationNode(set, id)
	if inputs := n.Member("inputs"); inputs != nil && n != set.Node {
		return inputs
	}
	return n
}

// evaluationNode returns the place of an evaluation; the set itself if it is not in its file.
func evaluationNode(set *eval.Set, id string) *input.Node {
	if all := set.Node.Member("evaluations"); all != nil {
		for _, n := range all.Items {
			if own := n.Member("id"); own != nil && eval.CanonicalID(own.Text) == id {
				return n
			}
		}
	}
	return set.Node
}
