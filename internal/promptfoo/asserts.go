package promptfoo

import (
	"cmp"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/evalrun/evalrun/eval/check"
	"github.com/evalrun/evalrun/internal/input"
)

// asserts makes checks of the assertions of one evaluation, and the criteria of judges.
type asserts struct {
	*importer
	test       test
	vars       map[string]json.RawMessage
	evaluation *evaluation
	first      bool
	// inSet says that the assertion is one of an assert-set.
	inSet bool
}

// texts are the assertions whose value is a text, or several, with the checks that they become.
var texts = map[string]map[string]any{
	"contains": {"key": "contains"}, "icontains": {"key": "contains", "ignoreCase": true},
	"contains-any": {"key": "containsAny"}, "icontains-any": {"key": "containsAny", "ignoreCase": true},
	"contains-all": {"key": "containsAll"}, "icontains-all": {"key": "containsAll", "ignoreCase": true},
	"starts-with": {"key": "startsWith"}, "regex": {"key": "regex"}, "equals": {"key": "equals"},
	"levenshtein": {"key": "levenshtein"}, "rouge-n": {"key": "rouge1"}, "bleu": {"key": "bleu"},
	"is-json": {"key": "isJson"}, "contains-json": {"key": "containsJson"}, "word-count": {"key": "words"},
	"latency": {"key": "maxLatency"}, "cost": {"key": "maxCost"}, "tool-call-f1": {"key": "toolF1"},
}

// judged are the assertions that models decide.
var judged = map[string]string{"llm-rubric": "rubric", "factuality": "factuality", "model-graded-factuality": "factuality"}

// others are assertions that have no counterpart here. They are known so that a cell of a CSV file is
// not taken for a text.
var others = []string{"javascript", "python", "ruby", "fn", "eval", "grade", "webhook", "is-xml", "contains-xml",
	"is-sql", "contains-sql", "is-html", "contains-html", "is-refusal", "moderation", "perplexity", "perplexity-score",
	"model-graded-closedqa", "answer-relevance", "context-recall", "context-relevance", "context-faithfulness", "g-eval",
	"is-valid-openai-function-call", "is-valid-openai-tools-call", "is-valid-function-call", "guardrails", "classifier",
	"select-best", "max-score", "gleu", "meteor", "finish-reason", "pi", "search-rubric", "conversation-relevance",
	"trace-span-count", "trace-span-duration", "trace-error-spans", "file"}

func known(kind string) bool {
	kind = strings.TrimPrefix(kind, "not-")
	return texts[kind] != nil || judged[kind] != "" || kind == similar || slices.Contains(others, kind)
}

// one makes a check of an assertion; nil if it is none, or has no counterpart.
func (a *asserts) one(n *input.Node) map[string]any {
	f := a.Object(n)
	if n.Kind != input.Object {
		return nil
	}
	kind := f.RequiredString("type")
	f.Ignore("description")
	plain, negated := strings.CutPrefix(kind, "not-")
	if plain == "assert-set" {
		return a.group(f, n)
	}
	switch {
	case plain == similar:
		a.similar(f, n, kind)
		return nil
	case judged[plain] != "":
		a.judge(f, n, judged[plain], kind)
		return nil
	}
	how := texts[plain]
	if how == nil {
		a.miss(n, "the assertion %s has no counterpart", kind)
		return nil
	}
	out := map[string]any{}
	if !a.value(f, n, plain, fmt.Sprint(how["key"]), out) {
		return nil
	}
	if how["ignoreCase"] != nil {
		out["ignoreCase"] = true
	}
	if negated {
		out["not"] = true
	}
	if w := f.Optional("weight", input.Number); w != nil {
		out["weight"] = w.JSON()
	}
	if name := f.String("metric", ""); name != "" {
		out["name"] = name
	}
	transform := f.Get("transform")
	if transform == nil {
		transform = a.test.transform
	}
	if transform != nil && !slices.Contains([]string{"maxLatency", "maxCost", "toolF1"}, fmt.Sprint(how["key"])) &&
		!a.transformed(transform, out) {
		return nil
	}
	a.rest(f)
	if err := check.Problem(jsonOf(out)); err != nil {
		a.miss(n, "the assertion %s has no counterpart: %v", kind, err)
		return nil
	}
	a.checks++
	return out
}

// value sets the key of a check, and its parameters.
func (a *asserts) value(f *input.Fields, n *input.Node, kind, key string, out map[string]any) bool {
	v := f.Get("value")
	threshold := f.Optional("threshold", input.Number)
	number := func(otherwise string) json.RawMessage {
		if threshold != nil {
			return threshold.JSON()
		}
		return json.RawMessage(otherwise)
	}
	switch kind {
	case "latency", "cost":
		if threshold == nil {
			a.miss(n, "%s without a threshold has no counterpart", kind)
			return false
		}
		if out[key] = threshold.JSON(); kind == "latency" {
			out[key] = threshold.Text + "ms"
			a.differ(n, "the latency is that of the whole rollout, not of the request alone")
		}
		return true
	case "is-json", "contains-json":
		if out[key] = true; kind == "contains-json" {
			a.differ(n, "an array in the text is found, too, where promptfoo finds objects alone")
		}
	}
	if v == nil || v.Kind == input.Null {
		if out[key] == nil {
			a.miss(n, "%s without a value has no counterpart", kind)
			return false
		}
		return true
	}
	value, ok := a.filled(v)
	if !ok {
		return false
	}
	out[key] = value
	text, isText := value.(string)
	switch kind {
	case "contains-any", "contains-all", "icontains-any", "icontains-all", "tool-call-f1":
		if isText {
			var list []string
			for one := range strings.SplitSeq(text, ",") {
				list = append(list, strings.TrimSpace(one))
			}
			out[key] = list
		}
		if kind == "tool-call-f1" {
			out["threshold"] = number("1")
		}
	case "word-count":
		var exact json.Number
		if json.Unmarshal(jsonOf(value), &exact) == nil {
			out[key] = map[string]any{"min": exact, "max": exact}
		}
	case "is-json", "contains-json":
		if isText { // the schema as a text
			if !json.Valid([]byte(text)) {
				a.miss(v, "a schema that is not JSON has no counterpart")
				return false
			}
			out[key] = json.RawMessage(text)
		}
	case "levenshtein":
		out["maxDistance"] = number("5")
	case "rouge-n":
		out["threshold"] = number("0.75")
		a.differ(n, "ROUGE is calculated from words in lower case without punctuation")
	case "bleu":
		out["threshold"] = number("0.5")
		a.differ(n, "BLEU is calculated from words in lower case without punctuation, and is not smoothed")
	case "contains", "icontains", "starts-with":
		if !isText {
			out[key] = string(jsonOf(value))
		}
	case "equals":
		if v.Kind == input.Number && f.Get("transform") == nil && a.test.transform == nil {
			out[key] = v.Text // a text of a model is compared, not a number in it
		}
	}
	return true
}

// filled returns a value with the variables filled in.
func (a *asserts) filled(n *input.Node) (any, bool) {
	if n.Kind != input.String {
		if wrong := anyPlace.FindString(string(n.JSON())); wrong != "" {
			a.miss(n, "%s in a value that is no text has no counterpart", wrong)
			return nil, false
		}
		return n.JSON(), true
	}
	text, ok := a.text(n)
	if !ok {
		return nil, false
	}
	if wrong := unlike(text); wrong != "" {
		a.miss(n, "%s in a value has no counterpart", wrong)
		return nil, false
	}
	lacks := ""
	text = plainPlace.ReplaceAllStringFunc(text, func(place string) string {
		value, found := a.find(plainPlace.FindStringSubmatch(place)[1])
		if !found {
			lacks = place
		}
		return value
	})
	if lacks != "" {
		a.miss(n, "%s names no variable of the test", lacks)
		return nil, false
	}
	return text, true
}

// find returns the value of a variable as a text.
func (a *asserts) find(name string) (string, bool) {
	first, rest, _ := strings.Cut(name, ".")
	value, ok := a.vars[first]
	for ok && rest != "" {
		var members map[string]json.RawMessage
		if first, rest, _ = strings.Cut(rest, "."); json.Unmarshal(value, &members) != nil {
			return "", false
		}
		value, ok = members[first]
	}
	var text string
	if json.Unmarshal(value, &text) == nil {
		return text, ok
	}
	return string(value), ok
}

// group makes a group of checks.
func (a *asserts) group(f *input.Fields, n *input.Node) map[string]any {
	list := f.Required("assert", input.Array)
	if list == nil {
		return nil
	}
	var checks []map[string]any
	outer := a.inSet
	a.inSet = true
	for _, item := range list.Items {
		if c := a.one(item); c != nil {
			checks = append(checks, c)
		}
	}
	if a.inSet = outer; len(checks) == 0 {
		return nil
	}
	out := map[string]any{"allOf": checks}
	if v := f.Optional("threshold", input.Number); v != nil {
		out["threshold"] = v.JSON()
	}
	if v := f.Optional("weight", input.Number); v != nil {
		out["weight"] = v.JSON()
	}
	if name := f.String("metric", ""); name != "" {
		out["name"] = name
	}
	a.rest(f)
	if err := check.Problem(jsonOf(out)); err != nil {
		a.miss(n, "the assertion assert-set has no counterpart: %v", err)
		return nil
	}
	return out
}

// judge gives the evaluation criteria for a judge of a ready prompt. Several in one evaluation are
// several judges.
func (a *asserts) judge(f *input.Fields, n *input.Node, template, kind string) {
	f.Ignore("metric")
	v := f.Get("value")
	if kind != strings.TrimPrefix(kind, "not-") || v == nil || v.Kind != input.String {
		a.miss(n, "the assertion %s has a counterpart only with a text as its value, and without not", kind)
		return
	}
	value, ok := a.filled(v)
	if !ok {
		return
	}
	provider := f.Get("provider")
	if provider == nil {
		provider = a.test.judge
	}
	config := map[string]any{"template": template, "answer": "boolean"}
	who := ""
	if provider != nil {
		whole, _ := model(provider.Text)
		service, name, _ := strings.Cut(whole, "/")
		// A judge has no provider: a model of claude-… is asked at Anthropic, and every other at OpenAI.
		claude, anthropic := strings.HasPrefix(name, "claude-"), service == "anthropic"
		if claude != anthropic || !anthropic && !strings.HasPrefix(service, "openai") {
			a.miss(n, "the judge %s has no counterpart", provider.JSON())
			return
		}
		who = name
		config["judges"] = []map[string]any{{"model": who}}
	} else {
		a.differ(n, "the judge is the model of the agent; judges in %q chooses another", template)
	}
	id := template
	if who != "" {
		id += "-" + idPart.ReplaceAllString(who, "-")
	}
	key := "rubric"
	if template == "factuality" {
		key = "expectedOutput"
	}
	for _, key := range []string{"threshold", "transform"} {
		if v := f.Get(key); v != nil {
			a.miss(v, "%s of %s has no counterpart", key, kind)
		}
	}
	a.evaluator(f, n, map[string]any{"id": id, "type": "llm-judge", "evaluatorConfig": config}, map[string]any{key: value})
}

// similar is promptfoo's word for texts that are alike by embeddings, and the type of evaluators that find it.
const similar = check.TypeSimilar

// similar gives the evaluation criteria for an evaluator that compares embeddings.
func (a *asserts) similar(f *input.Fields, n *input.Node, kind string) {
	model, ok := a.embeddings(f, n)
	v := f.Get("value")
	if ok && (v == nil || v.Kind == input.Null) {
		a.miss(n, "%s without a value has no counterpart", kind)
		ok = false
	}
	if !ok {
		return
	}
	var texts []any
	items := []*input.Node{v}
	if v.Kind == input.Array {
		items = v.Items
	}
	for _, item := range items {
		one, ok := a.filled(item)
		if !ok {
			return
		}
		texts = append(texts, one)
	}
	config := map[string]any{"model": model, "threshold": json.RawMessage("0.75")}
	if threshold := f.Optional("threshold", input.Number); threshold != nil {
		config["threshold"] = threshold.JSON()
	}
	if kind != similar {
		config["not"] = true
	}
	if path := a.path(); path != "" {
		config["path"] = path
	}
	transform := cmp.Or(f.Get("transform"), a.test.transform)
	if transform != nil && !a.transformed(transform, config) {
		return
	}
	if len(texts) > 1 && kind != similar {
		a.differ(n, "with several texts the output must be unlike all of them, where one is enough for promptfoo")
	}
	id := "similar-" + idPart.ReplaceAllString(model, "-")
	a.evaluator(f, n, map[string]any{"id": id, "type": similar, "evaluatorConfig": config}, map[string]any{"expectedOutput": texts})
}

// embeddings is the model of embeddings that an assertion names; promptfoo's own, if it names none, or one
// that has no embeddings.
func (a *asserts) embeddings(f *input.Fields, n *input.Node) (name string, ok bool) {
	provider := cmp.Or(f.Get("provider"), a.test.judge, &input.Node{})
	one := provider
	for _, key := range []string{"embedding", "id"} {
		one = cmp.Or(one.Member(key), one)
	}
	if !strings.Contains(one.Text, ":embedding") {
		return "text-embedding-3-large", true
	}
	for _, prefix := range []string{"openai:embedding:", "openai:embeddings:"} {
		if name, ok := strings.CutPrefix(one.Text, prefix); ok && name != "" {
			return name, true
		}
	}
	a.miss(n, "embeddings of %s have no counterpart; those of openai:embedding:MODEL have", provider.JSON())
	return "", false
}

// evaluator gives the evaluation criteria for an evaluator of its own, which is written once for all
// evaluations. Several in one evaluation are several evaluators.
func (a *asserts) evaluator(f *input.Fields, n *input.Node, made, criteria map[string]any) {
	if a.inSet || a.test.threshold != nil {
		a.differ(n, "a judge is an evaluator of its own, which must pass by itself: no %s weighs it with other assertions",
			map[bool]string{true: "assert-set", false: "threshold"}[a.inSet])
	}
	base, config := fmt.Sprint(made["id"]), string(jsonOf(made["evaluatorConfig"]))
	id := base
	for k := 2; a.evaluation.Criteria[id] != nil || a.judges[id] != "" && a.judges[id] != config; k++ {
		id = fmt.Sprintf("%s-%d", base, k)
	}
	if a.judges[id] == "" {
		made["id"], a.judges[id] = id, config
		a.out.Evaluators = append(a.out.Evaluators, made)
	}
	a.evaluation.Criteria[id] = criteria
	for _, key := range []string{"weight", "rubricPrompt"} {
		if v := f.Get(key); v != nil {
			a.miss(v, "%s of an assertion that asks a model has no counterpart", key)
		}
	}
	a.rest(f)
	a.checks++
}

var idPart = regexp.MustCompile(`[^A-Za-z0-9]+`)

// method and member match the transforms that have a counterpart.
var (
	method = regexp.MustCompile(`^output((?:\.(?:trim|toLowerCase|toUpperCase)\(\))+);?$`)
	member = regexp.MustCompile(`^(?:output|JSON\.parse\(output\))((?:\.[A-Za-z_$][\w$]*|\[\d+\])+);?$`)
)

// transformed sets the transform of a check, or its path.
func (a *asserts) transformed(n *input.Node, out map[string]any) bool {
	text := strings.TrimSpace(n.Text)
	names := map[string]string{"trim": "trim", "toLowerCase": "lower", "toUpperCase": "upper"}
	if m := method.FindStringSubmatch(text); m != nil {
		var list []string
		for one := range strings.SplitSeq(strings.TrimPrefix(m[1], "."), ".") {
			list = append(list, names[strings.TrimSuffix(one, "()")])
		}
		out["transform"] = list
		return true
	}
	if m := member.FindStringSubmatch(text); m != nil && !strings.Contains(m[1], ".length") {
		path := strings.TrimPrefix(m[1], ".")
		if before := a.path(); before != "" {
			path = before + m[1]
		}
		out["path"] = path
		return true
	}
	a.miss(n, "the transform %q has no counterpart; output.trim(), toLowerCase(), toUpperCase() and members of the output have",
		text)
	return false
}

// path is where the text is in the agent's output.
func (a *asserts) path() string {
	if len(a.out.Evaluators) == 0 {
		return ""
	}
	path, _ := a.out.Evaluators[0]["path"].(string)
	return path
}
