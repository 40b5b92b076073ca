package eval

import (
	"fmt"
	"path"
	"strings"

	"github.com/evalrun/evalrun/internal/input"
)

// Select keeps the evaluations whose id is in ids and that match the pattern; no ids and an empty
// pattern keep all.
//
// Ids are compared without regard to case, as UiPath does. The pattern is a glob as of path.Match,
// or else a plain substring, over id and name. An id that the set does not have is an error that
// names the nearest one, and so is a pattern that matches nothing.
func (s *Set) Select(ids []string, pattern string) error {
	if _, err := path.Match(pattern, ""); err != nil {
		return fmt.Errorf("pattern %q: %w", pattern, err)
	}
	wanted := map[string]string{}
	for _, id := range ids {
		wanted[strings.ToLower(id)] = id
	}
	all := make([]string, len(s.Evaluations))
	var kept []Evaluation
	found := map[string]bool{}
	for i, e := range s.Evaluations {
		all[i] = e.ID
		key := strings.ToLower(e.ID)
		_, selected := wanted[key]
		found[key] = true
		if (selected || len(ids) == 0) && matchesPattern(e, pattern) {
			kept = append(kept, e)
		}
	}
	var unknown []string
	for _, id := range ids {
		if !found[strings.ToLower(id)] {
			unknown = append(unknown, fmt.Sprintf("the set %q has no evaluation with the id %q%s", s.Name, id, input.Suggest(id, all)))
		}
	}
	if len(unknown) > 0 {
		return fmt.Errorf("%s; it has %s", strings.Join(unknown, "; "), abridged(all))
	}
	if len(kept) == 0 && pattern != "" {
		return fmt.Errorf("no evaluation of the set %q matches %q; it has %s", s.Name, pattern, abridged(all))
	}
	s.Evaluations = kept
	return nil
}

func matchesPattern(e Evaluation, pattern string) bool {
	for _, text := range []string{e.ID, e.Name} {
		if ok, _ := path.Match(pattern, text); ok || strings.Contains(text, pattern) { // the pattern was checked before
			return true
		}
	}
	return false
}

// abridged lists ids for a message, not thousands of them.
func abridged(ids []string) string {
	const most = 20
	if len(ids) > most {
		return fmt.Sprintf("%s and %d more", list(ids[:most]), len(ids)-most)
	}
	return list(ids)
}
