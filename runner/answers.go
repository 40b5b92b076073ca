package runner

import (
	"maps"
	"path/filepath"
	"slices"

	"github.com/evalrun/evalrun/eval"
	"github.com/evalrun/evalrun/internal/input"
	"github.com/evalrun/evalrun/internal/wait"
)

// readAnswers reads the answers of the people who are played: those of the set and of its
// evaluations, and those of a file if its path is not empty. They are nil if there are none.
func readAnswers(r *input.Reader, set *eval.Set, path string) (*wait.PlayedAnswers, error) {
	out := &wait.PlayedAnswers{Set: wait.ParseAnswers(r, set.Answers, "answers")}
	for _, id := range slices.Sorted(maps.Keys(set.AnswersOf)) {
		if list := wait.ParseAnswers(r, set.AnswersOf[id], "evaluation "+id+" answers"); len(list) > 0 {
			if out.Evaluations == nil {
				out.Evaluations = map[string][]wait.PlayedAnswer{}
			}
			out.Evaluations[id] = list
		}
	}
	if path != "" {
		n, err := readPlayed(r, path, "answers")
		if err != nil {
			return nil, err
		}
		out.File = wait.ParseAnswers(r, n, filepath.Base(path)+" answers")
	}
	if len(out.Set)+len(out.File)+len(out.Evaluations) == 0 {
		return nil, nil
	}
	return out, nil
}

// readPlayed reads the file of an option: a list, or an object with the key of the option's name.
func readPlayed(r *input.Reader, path, option string) (*input.Node, error) {
	data, err := input.ReadFile(path, input.MaxFile)
	if err != nil {
		return nil, inputError("--%s: %w%s", option, input.Unreadable(path, err), input.NearFile(path))
	}
	n, err := input.Parse(path, data)
	if err != nil {
		return nil, inputError("--%s: %w", option, err)
	}
	if n.Kind == input.Object {
		f := r.Object(n)
		n = f.Required(option, input.Array)
		f.Refuse()
	}
	return n, nil
}
