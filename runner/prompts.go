package runner

import (
	"fmt"

	"github.com/evalrun/evalrun/eval"
	"github.com/evalrun/evalrun/internal/agent"
	"github.com/evalrun/evalrun/internal/input"
)

// promptCheck finds names in the prompts of agents that the inputs of an evaluation do not have.
// Each is reported once.
type promptCheck struct {
	agents []agent.Entry
	seen   map[string]bool
}

func (e *EvalSet) newPromptCheck() *promptCheck {
	c := &promptCheck{seen: map[string]bool{}}
	if e.opts.Inputs == nil { // otherwise the inputs are not those of the file
		c.agents = e.req.Agents
	}
	return c
}

// missing says what an evaluation lacks; empty if nothing, or if the same was said before.
func (c *promptCheck) missing(one eval.Evaluation) string {
	for _, a := range c.agents {
		name := a.Lacks(one.Inputs)
		if key := a.Name + "\x00" + name; name != "" && !c.seen[key] {
			c.seen[key] = true
			return fmt.Sprintf("the prompt of the agent %s names {{%s}}, which the inputs of the evaluation %q do not have",
				a.Name, name, one.ID)
		}
	}
	return ""
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
