package check

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/evalrun/evalrun/eval/evaluator"
	"github.com/evalrun/evalrun/internal/input"
	"github.com/evalrun/evalrun/internal/jq"
)

// These bound the checks of an evaluator.
const (
	maxChecks = 1000
	maxDepth  = 10
)

// check is one check.
type check struct {
	kind, name string
	about      about
	negated    bool
	weight     float64
	path       *path
	jq         *jq.Expression
	transforms []string
	threshold  *float64
	test       test
}

// test looks at a value of a rollout.
type test func(ctx context.Context, s *scene, value any) answer

// answer is what a test says.
type answer struct {
	score float64
	// want and got say what was expected and what was there, as in "expected WANT, got GOT".
	want, got string
	// unfit says why the value cannot be tested; the check then fails, also one that is turned round.
	unfit string
	// failure says that nobody can tell: there is no score.
	failure error
}

// reader reads checks.
type reader struct {
	*input.Reader
	// template says that values may be filled in later; open is set if there are such.
	template, open bool
	count          int
}

// list reads a list of checks.
func (r *reader) list(n *input.Node, depth int) (checks []*check) {
	if depth > maxDepth {
		r.Errorf(n, "expected groups of checks at most %d deep", maxDepth)
		return nil
	}
	if len(n.Items) == 0 {
		r.Errorf(n, "expected at least one check")
	}
	for _, item := range n.Items {
		if r.count++; r.count > maxChecks {
			r.Errorf(item, "expected at most %d checks", maxChecks)
			return checks
		}
		if one := r.one(item, depth); one != nil {
			checks = append(checks, one)
		}
	}
	return checks
}

func (r *reader) one(n *input.Node, depth int) *check {
	c := evaluator.NewConfig(r.Reader, n, checkKeys)
	if n.Kind != input.Object {
		return nil
	}
	out := &check{negated: c.Bool("not"), weight: c.Float("weight"), name: c.String("name"), path: r.path(c)}
	var value *input.Node
	var found []string
	for _, a := range abouts {
		if v := c.Get(a.key.Name); v != nil {
			out.about, value, found = a, v, append(found, a.key.Name)
		}
	}
	defer c.Done()
	switch {
	case len(found) == 0:
		r.unknown(n)
		return nil
	case len(found) > 1:
		r.Errorf(n, "expected one check in each object, got %s", strings.Join(found, " and "))
		return nil
	case value.Kind == input.Null:
		r.Errorf(value, "expected the value of %s, got null", found[0])
		return nil
	}
	out.kind = found[0]
	if r.template {
		r.placesIn(value)
	}
	r.parameters(c, out)
	r.where(c, out)
	out.threshold = r.threshold(c)
	if r.template && isOpen(n) {
		r.open = true
		return out
	}
	if k := out.about.key; k.Kind != input.Null && value.Kind != k.Kind {
		r.Errorf(value, "expected %s, got %s", k.Kind, value.Kind)
		return nil
	}
	out.test = r.build(c, out.kind, value, depth)
	return out
}

// unknown tells that an object has no check.
func (r *reader) unknown(n *input.Node) {
	var names []string
	hint := ""
	for _, a := range abouts {
		names = append(names, a.key.Name)
	}
	for _, m := range n.Members {
		if hint == "" {
			hint = input.Suggest(m.Key, names)
		}
	}
	r.Errorf(n, "expected a check, one of %s%s", strings.Join(names, ", "), hint)
}

// likePlace matches what looks as if a value of the evaluation would be filled in.
var likePlace = regexp.MustCompile(`\{\{\s*(?:expected|input)`)

// placesIn warns of texts that are taken as they are though they look like places: with such a text a check
// with not would always pass.
func (r *reader) placesIn(value *input.Node) {
	for _, n := range append([]*input.Node{value}, value.Items...) {
		if _, _, whole := place(n.Text); n.Kind == input.String && !whole && likePlace.MatchString(n.Text) {
			r.Warnf(n, "nothing is filled in here: {{expected}}, {{input}} and these with a path must be the whole text")
		}
	}
}

// parameters refuses those that other checks have.
func (r *reader) parameters(c *evaluator.Config, one *check) {
	for _, name := range []string{"ignoreCase", "ignoreSpace", "tolerance", "relativeTolerance", "choices",
		"threshold", "maxDistance", "of"} {
		if v := c.Get(name); v != nil && v.Kind != input.Null && !slices.Contains(one.about.parameters, name) {
			r.Errorf(v, "%s has no %s", one.kind, name)
		}
	}
}

// where reads which value is checked.
func (r *reader) where(c *evaluator.Config, one *check) {
	if n := c.Optional("jq", input.String); n != nil {
		expression, err := jq.Compile(n.Text)
		if err != nil {
			r.Errorf(n, "%v", err)
		}
		if one.jq = expression; one.path != nil {
			r.Errorf(n, "expected either path or jq, got both")
		}
	}
	r.transforms(c, one)
	if one.about.ofRollout {
		for _, name := range []string{"path", "jq", "transform"} {
			if v := c.Get(name); v != nil && v.Kind != input.Null {
				r.Errorf(v, "%s has no %s; it does not look at the output", one.kind, name)
			}
		}
	}
}

// transforms reads what is done with the value first.
func (r *reader) transforms(c *evaluator.Config, one *check) {
	n := c.Get("transform")
	if n != nil && n.Kind != input.Null {
		items := []*input.Node{n}
		if n.Kind == input.Array {
			items = n.Items
		}
		for _, item := range items {
			if item.Kind != input.String || transforms[item.Text] == nil {
				r.Errorf(item, "expected one of %s, got %s%s", strings.Join(transformNames(), ", "), item.JSON(),
					input.Suggest(item.Text, transformNames()))
				continue
			}
			one.transforms = append(one.transforms, item.Text)
		}
	}
}

func (r *reader) path(c *evaluator.Config) *path {
	n := c.Optional("path", input.String)
	if n == nil {
		return nil
	}
	p, err := parsePath(n.Text)
	if err != nil {
		r.Errorf(n, "%v", err)
	}
	return p
}

// threshold reads one, nil if there is none.
func (r *reader) threshold(c *evaluator.Config) *float64 {
	if !c.Has("threshold") {
		return nil
	}
	v := c.Float("threshold")
	return &v
}

// build makes the test of a check.
func (r *reader) build(c *evaluator.Config, kind string, v *input.Node, depth int) test {
	switch kind {
	case "contains", "containsAny", "containsAll", "startsWith", "endsWith":
		return r.substrings(c, kind, v)
	case "equals":
		return r.equals(c, v)
	case "regex":
		return r.regex(c, v)
	case "isJson", "containsJson":
		return r.document(kind, v)
	case "number":
		return r.number(c, v)
	case "choice":
		return r.choice(c, v)
	case "words", "characters":
		return r.counted(kind, v)
	case "levenshtein", "bleu", "rouge1", "rouge2", "rougeL":
		return r.similar(c, kind, v)
	case "toolF1", "toolOrder":
		return r.tools(kind, v)
	case "toolCall":
		return r.toolCall(v, depth)
	case "anyOf", "allOf", "atLeast":
		return r.group(c, kind, v, depth)
	}
	return r.used(c, kind)
}

// title is what people are told which check it is.
func (c *check) title() string {
	if c.name != "" {
		return c.name
	}
	return c.kind
}

// run looks at a rollout.
func (c *check) run(ctx context.Context, s *scene) (finding, error) {
	out := finding{Check: c.kind, Name: c.name, Weight: c.weight}
	a := c.answer(ctx, s)
	if a.failure != nil {
		return out, a.failure
	}
	if ctx.Err() != nil {
		return out, fmt.Errorf("the evaluator was ended: %w", context.Cause(ctx))
	}
	want := a.want
	if c.threshold != nil {
		want += fmt.Sprintf(" (from %g on)", *c.threshold)
		a.score = truth(a.score >= *c.threshold)
	}
	if c.negated {
		a.score = 1 - a.score
		want = "anything but " + want
	}
	switch {
	case a.unfit != "":
		a.score = 0
		out.Reason = fmt.Sprintf("expected %s, but %s", want, a.unfit)
	default:
		out.Reason = fmt.Sprintf("expected %s, got %s", want, a.got)
	}
	if c.name != "" {
		out.Reason = c.name + ": " + out.Reason
	}
	out.Score, out.Passed = a.score, a.score >= 1
	return out, nil
}

// answer tests the value that the check is about.
func (c *check) answer(ctx context.Context, s *scene) answer {
	if c.about.ofRollout {
		return c.test(ctx, s, nil)
	}
	v, err := c.value(ctx, s)
	var missing *missingError
	switch {
	case errors.As(err, &missing):
		return answer{want: c.nothing(), unfit: err.Error()}
	case err != nil:
		return answer{failure: err}
	}
	return c.test(ctx, s, v)
}

// nothing describes a check of which the value is not there.
func (c *check) nothing() string { return "a value for " + c.kind }

func truth(b bool) float64 {
	if b {
		return 1
	}
	return 0
}
