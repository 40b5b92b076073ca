package judged

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/evalrun/evalrun/eval"
	"github.com/evalrun/evalrun/eval/evaluator"
	"github.com/evalrun/evalrun/eval/pyvalue"
	"github.com/evalrun/evalrun/eval/spans"
	"github.com/evalrun/evalrun/internal/input"
	"github.com/evalrun/evalrun/internal/jsonobj"
)

// maxJudgedFile is how much of a workspace's file a judge sees.
const maxJudgedFile = 256 << 10

// judgePlaceholder matches a placeholder of a judge's prompt. It is compiled on first use: that
// takes too long for the start of every process.
var judgePlaceholder = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`\{\{ *([a-zA-Z]+(?:\.[^{}]+?)?) *\}\}`)
})

// judgeTemplate is the prompt of evalrun's own judges, with {{input}}, {{output}}, {{expected}},
// {{history}}, {{criteria.NAME}} and {{workspace.FILE}}.
type judgeTemplate struct{ text string }

// readJudgeTemplate reads a prompt, which may have further placeholders without a name.
func readJudgeTemplate(r *input.Reader, n *input.Node, more ...string) judgeTemplate {
	if n == nil {
		return judgeTemplate{}
	}
	for _, m := range judgePlaceholder().FindAllStringSubmatch(n.Text, -1) {
		kind, name, _ := strings.Cut(m[1], ".")
		known := map[string]bool{"input": false, "output": false, "expected": false, "history": false,
			"criteria": true, "workspace": true}
		if named, ok := known[kind]; (!ok || named != (name != "")) && !slices.Contains(more, m[1]) {
			r.Errorf(n, "the prompt has %s; expected {{input}}, {{output}}, {{expected}}, {{history}}, "+
				"{{criteria.NAME}} or {{workspace.FILE}}", m[0])
		}
	}
	return judgeTemplate{n.Text}
}

// has reports whether the prompt has a placeholder.
func (t judgeTemplate) has(place string) bool {
	return slices.ContainsFunc(judgePlaceholder().FindAllStringSubmatch(t.text, -1),
		func(m []string) bool { return m[1] == place })
}

// fill puts the values into the prompt in one pass, each between tags. The tags end with a part of
// the hash of all values, so that no value can close its own: it would have to hold its own hash.
// The values are hashed without secrets, as they are sent, so the same prompt is sent for values
// that differ only in their secrets. more holds the values of further placeholders.
func (t judgeTemplate) fill(s eval.Subject, criteria *pyvalue.Object, more map[string]string) (string, error) {
	places := judgePlaceholder().FindAllStringSubmatchIndex(t.text, -1)
	values := make([]string, len(places))
	for i, at := range places {
		place := t.text[at[2]:at[3]]
		value, ok := more[place]
		if !ok {
			var err error
			if value, err = judgedValue(place, s, criteria); err != nil {
				return "", err
			}
		}
		values[i] = s.Judge.Redact(value)
	}
	const digits = 24 // 96 bits: nobody finds a value that holds its own hash by trying
	_, hash, _ := strings.Cut(evaluator.Hash(append(values, s.Judge.Redact(t.text))...), ":")
	var b strings.Builder
	last := 0
	for i, at := range places {
		kind, _, _ := strings.Cut(t.text[at[2]:at[3]], ".")
		tag := kind + "-" + hash[:digits]
		fmt.Fprintf(&b, "%s<%s>\n%s\n</%s>", t.text[last:at[0]], tag, values[i], tag)
		last = at[1]
	}
	return b.String() + t.text[last:], nil
}

func judgedValue(place string, s eval.Subject, criteria *pyvalue.Object) (string, error) {
	kind, name, _ := strings.Cut(place, ".")
	switch kind {
	case "input":
		return jsonText(s.Evaluation.Inputs), nil
	case "output":
		return jsonText(s.Output), nil
	case "history":
		return spans.History(s.Trace), nil
	case "workspace":
		return judgedFile(s.Workspace, name)
	case "expected":
		name = "expectedOutput"
	}
	v, ok := criteria.Values[name]
	if !ok {
		return "", fmt.Errorf("the judge's prompt has {{%s}}, and the evaluation has no %s", place, name)
	}
	raw, err := jsonobj.Marshal(v)
	return jsonText(raw), err
}

// jsonText returns a JSON value as a person reads it: a string without its quotes.
func jsonText(raw json.RawMessage) string {
	var text string
	if json.Unmarshal(raw, &text) == nil {
		return text
	}
	return string(raw)
}

// judgedFile returns the beginning of a file that the agent has left. It never leads out of the
// workspace.
func judgedFile(workspace, name string) (string, error) {
	root, err := os.OpenRoot(workspace)
	if errors.Is(err, fs.ErrNotExist) {
		return "(there is no such file)", nil
	} else if err != nil {
		return "", err
	}
	defer func() { _ = root.Close() }() // only read
	info, err := root.Stat(name)
	if err != nil || !info.Mode().IsRegular() {
		return "(there is no such file)", nil //nolint:nilerr // the judge is told
	}
	f, err := root.Open(name)
	if err != nil {
		return "", err
	}
	defer func() { _ = f.Close() }() // only read
	data, err := io.ReadAll(io.LimitReader(f, maxJudgedFile))
	return strings.ToValidUTF8(string(data), "\uFFFD"), err
}
