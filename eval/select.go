package eval

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"maps"
	"path"
	"slices"
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

// SelectTags keeps the evaluations that have one of the tags, their own or the set's; no tags keep
// all. A tag that no evaluation has is an error that names the nearest one.
func (s *Set) SelectTags(tags []string) error {
	if len(tags) == 0 {
		return nil
	}
	known := map[string]bool{}
	var kept []Evaluation
	for _, e := range s.Evaluations {
		own := slices.Concat(s.Tags, e.Tags)
		for _, tag := range own {
			known[tag] = true
		}
		if slices.ContainsFunc(tags, func(tag string) bool { return slices.Contains(own, tag) }) {
			kept = append(kept, e)
		}
	}
	all := slices.Sorted(maps.Keys(known))
	for _, tag := range tags {
		if !known[tag] {
			return fmt.Errorf("no evaluation of the set %q has the tag %q%s; there are the tags %s", s.Name, tag, input.Suggest(tag, all), abridged(all))
		}
	}
	s.Evaluations = kept
	return nil
}

// Sample keeps n evaluations by chance, in the order of the set. The same seed chooses the same ones
// of the same set, whatever their order; where the set has changed, as many of them as possible.
func (s *Set) Sample(n int, seed uint64) {
	if n >= len(s.Evaluations) {
		return
	}
	rank := func(id string) [sha256.Size]byte {
		return sha256.Sum256(append(binary.BigEndian.AppendUint64(nil, seed), id...))
	}
	drawn := slices.Clone(s.Evaluations)
	slices.SortFunc(drawn, func(a, b Evaluation) int {
		rankA, rankB := rank(a.ID), rank(b.ID)
		return bytes.Compare(rankA[:], rankB[:])
	})
	chosen := map[string]bool{}
	for _, e := range drawn[:n] {
		chosen[e.ID] = true
	}
	s.Evaluations = slices.DeleteFunc(slices.Clone(s.Evaluations), func(e Evaluation) bool { return !chosen[e.ID] })
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
