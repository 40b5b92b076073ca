package service

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strconv"

	"github.com/evalrun/evalrun/internal/input"
	"github.com/evalrun/evalrun/runner"
)

// uploadName is the name of an uploaded eval set in messages.
const uploadName = "upload.json"

// maxUpload is how large an uploaded eval set may be, in bytes: as a tree it is a hundred times
// that.
const maxUpload = 4 << 20

// largeUpload is the size from which on uploads are read one after the other, so that their trees
// do not add up.
const largeUpload = 256 << 10

// variable matches references that a value of the service's environment would replace.
var variable = regexp.MustCompile(`\$\{[A-Za-z_]`)

// refused lists keys that an uploaded eval set must not have, and what to use instead.
var refused = map[string]string{
	"dataset": "data sets are those of the named eval sets",
	"jobs":    "the sources of jobs are those of the service's configuration",
	"tasks":   "task directories are those of the named eval sets",
	"notify":  "notifications are those of the service's configuration",
	"judges":  "judges are those of the service's configuration",
	"answers": "questions are answered by who may deliver",
}

// refusedOfEvaluator lists keys that an uploaded evaluator must not have, however deep.
var refusedOfEvaluator = []string{"command", "provider", "baseUrl", "base_url", "apiKey", "api_key"}

// upload makes an uploaded eval set of a request. Anything that could run a program or show a
// secret of the service is an error: an upload names agents, jobs and evaluators, and brings none.
func (l *loader) upload(data json.RawMessage) (*runner.Upload, error) {
	if len(data) > maxUpload {
		return nil, &runner.InputError{Err: fmt.Errorf(
			"%s: expected at most %d MiB, got %d bytes; a larger eval set belongs into the folder of the named ones",
			uploadName, maxUpload>>20, len(data))}
	}
	root, err := input.ParseJSON(uploadName, data)
	if err != nil {
		return nil, &runner.InputError{Err: err}
	}
	r := &input.Reader{}
	r.Object(root)
	checkUpload(r, root)
	if err := r.Problems.Err(false); err != nil {
		return nil, &runner.InputError{Err: err}
	}
	u := &runner.Upload{Name: uploadName, Data: data, Dir: l.cfg.EvalSets.base(l.cfg.Catalog.Dir)}
	if l.cfg.EvalSets.Dir != "" {
		u.Evaluators = folder(filepath.Join(l.cfg.EvalSets.Dir, "..", "evaluators"))
	}
	return u, nil
}

// folder returns a tree of files, nil if there is none.
func folder(dir string) fs.FS {
	if info, err := os.Stat(dir); err != nil || !info.IsDir() {
		return nil
	}
	return os.DirFS(dir)
}

func checkUpload(r *input.Reader, root *input.Node) {
	noVariables(r, root)
	for key, instead := range refused {
		if n := root.Member(key); n != nil && n.Kind != input.Null {
			r.Errorf(n, "an uploaded eval set has no %s; %s", key, instead)
		}
	}
	if evaluations := root.Member("evaluations"); evaluations != nil {
		for _, one := range evaluations.Items {
			if n := one.Member("answers"); n != nil && n.Kind != input.Null {
				r.Errorf(n, "an uploaded evaluation has no answers; %s", refused["answers"])
			}
		}
	}
	noExpressions(r, root, false)
	evaluators := root.Member("evaluators")
	if evaluators == nil {
		return
	}
	for _, one := range evaluators.Items {
		if t := one.Member("type"); t != nil && t.Text == "command" {
			r.Errorf(t, "an uploaded eval set brings no command; name an evaluator of the service with evaluatorRefs")
			continue
		}
		noPrograms(r, one)
	}
}

// noPrograms records the keys of an evaluator that name a program or a provider.
func noPrograms(r *input.Reader, n *input.Node) {
	for _, item := range n.Items {
		noPrograms(r, item)
	}
	for _, m := range n.Members {
		for _, key := range refusedOfEvaluator {
			if m.Key == key {
				r.Errorf(m.Value, "an uploaded eval set brings no %s; name an evaluator of the service with evaluatorRefs", key)
			}
		}
		noPrograms(r, m.Value)
	}
}

// noExpressions records the jq expressions of checks: one may take any amount of memory.
func noExpressions(r *input.Reader, n *input.Node, inChecks bool) {
	for _, item := range n.Items {
		noExpressions(r, item, inChecks)
	}
	for _, m := range n.Members {
		if inChecks && m.Key == "jq" {
			r.Errorf(m.Value, "an uploaded eval set brings no jq; choose a part of the output with path")
		}
		noExpressions(r, m.Value, inChecks || m.Key == "checks")
	}
}

// noVariables records the strings that name a variable.
func noVariables(r *input.Reader, n *input.Node) {
	if n.Kind == input.String && variable.MatchString(n.Text) {
		r.Errorf(n, "an uploaded eval set names no variables, got %s", strconv.Quote(n.Text))
	}
	for _, item := range n.Items {
		noVariables(r, item)
	}
	for _, m := range n.Members {
		if variable.MatchString(m.Key) {
			r.Errorf(m.Value, "an uploaded eval set names no variables, got the key %s", quote(m.Key))
		}
		noVariables(r, m.Value)
	}
}

// quote quotes a text from outside in a message.
func quote(s string) string {
	const most = 100
	if len(s) > most {
		s = s[:most] + "…"
	}
	return strconv.Quote(s)
}
