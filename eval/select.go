package eval

import (
	"bytes"
	"container/heap"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"

	"github.com/evalrun/evalrun/internal/input"
)

// maxChosen is how much memory the chosen evaluations may take, in bytes: as much as the file of an
// eval set.
const maxChosen = input.MaxFile

// Wanted says which evaluations of a set are wanted. Fields that are empty or 0 exclude none.
type Wanted struct {
	// IDs are compared without regard to case, as UiPath does. Pattern is a glob as of path.Match, or
	// else a plain substring, over id and name. An evaluation must have one of Tags, its own or the
	// set's.
	IDs     []string
	Pattern string
	Tags    []string
	// Limit or Sample is how many evaluations are taken in the end, Sample by Seed (see Set.Sample).
	Limit  int
	Sample int
	Seed   uint64
	// AtOnce applies Limit or Sample while evaluations are added, so that no more than that are kept.
	// It is wrong if something else chooses before them.
	AtOnce bool
}

// Choice chooses evaluations out of those that are added to it, and keeps no others: a data set may
// be longer than memory.
type Choice struct {
	Wanted
	set    *Set
	chosen []Evaluation
	// ids maps the wanted ids, in lower case, to whether they were there. names and tags are those of
	// the added evaluations, for messages: no more than some thousands.
	ids     map[string]bool
	names   []string
	tags    map[string]bool
	added   int
	matched int // how many had a wanted id and match the pattern
	dropped bool
	// best holds the evaluations of a sample that is drawn at once, the one with the highest rank
	// first.
	best drawing
	// size is about how much memory the chosen evaluations take, in bytes; most is how much they may.
	size, most int
}

// Choose begins to choose among evaluations of the set.
func (s *Set) Choose(w Wanted) (*Choice, error) {
	if _, err := path.Match(w.Pattern, ""); err != nil {
		return nil, fmt.Errorf("pattern %q: %w", w.Pattern, err)
	}
	c := &Choice{Wanted: w, set: s, most: maxChosen, ids: map[string]bool{}, tags: map[string]bool{}}
	for _, id := range w.IDs {
		c.ids[strings.ToLower(id)] = false
	}
	return c, nil
}

// Add offers an evaluation. It is an error if too many were chosen to be kept.
func (c *Choice) Add(e Evaluation) error {
	c.added++
	switch {
	case !c.wants(e) || c.dropped && c.Sample == 0:
		return nil
	case c.AtOnce && c.Sample > 0:
		return c.draw(e)
	case c.AtOnce && c.Limit > 0 && len(c.chosen) == c.Limit:
		c.dropped = true
		return nil
	}
	c.chosen = append(c.chosen, e)
	if c.size += sizeOf(e); c.size > c.most {
		return c.drop()
	}
	return nil
}

func (c *Choice) wants(e Evaluation) bool {
	const most = 10_000
	if len(c.names) < most {
		c.names = append(c.names, strings.Clone(e.ID)) // an id may be a part of its row's text
	}
	if key := strings.ToLower(e.ID); len(c.IDs) > 0 {
		if _, ok := c.ids[key]; !ok {
			return false
		}
		c.ids[key] = true
	}
	if !matchesPattern(e, c.Pattern) {
		return false
	}
	c.matched++
	if len(c.Tags) == 0 {
		return true
	}
	own := slices.Concat(c.set.Tags, e.Tags)
	for _, tag := range own {
		if len(c.tags) < most || slices.Contains(c.Tags, tag) {
			c.tags[tag] = true
		}
	}
	return slices.ContainsFunc(c.Tags, func(tag string) bool { return slices.Contains(own, tag) })
}

// drawn is an evaluation of a sample, with its rank and its place among those that were added.
type drawn struct {
	Evaluation
	rank  [sha256.Size]byte
	place int
}

// drawing is a heap, with the highest rank at its top.
type drawing []drawn

func (d drawing) Len() int           { return len(d) }
func (d drawing) Less(i, j int) bool { return bytes.Compare(d[i].rank[:], d[j].rank[:]) > 0 }
func (d drawing) Swap(i, j int)      { d[i], d[j] = d[j], d[i] }
func (d *drawing) Push(x any)        { *d = append(*d, x.(drawn)) } //nolint:forcetypeassert // nothing else is pushed
func (d *drawing) Pop() any {
	last := len(*d) - 1
	x := (*d)[last]
	*d = (*d)[:last]
	return x
}

// draw keeps an evaluation if it is among those with the lowest ranks.
func (c *Choice) draw(e Evaluation) error {
	one := drawn{e, rank(e.ID, c.Seed), c.added}
	if len(c.best) == c.Sample {
		c.dropped = true
		if bytes.Compare(one.rank[:], c.best[0].rank[:]) >= 0 {
			return nil
		}
		c.size -= sizeOf(c.best[0].Evaluation)
		c.best[0] = one
		heap.Fix(&c.best, 0)
	} else {
		heap.Push(&c.best, one)
	}
	if c.size += sizeOf(e); c.size > c.most {
		return c.tooMany(len(c.best))
	}
	return nil
}

func (c *Choice) tooMany(n int) error {
	return fmt.Errorf("the first %d evaluations that are chosen need more than %d MiB, the most that a run may "+
		"have; choose fewer, with --limit or --sample", n, c.most>>20)
}

// drop applies the limit or the sample before everything was added, because the chosen evaluations
// need too much memory.
func (c *Choice) drop() error {
	c.dropped = c.Limit > 0 || c.Sample > 0
	some := Set{Evaluations: c.chosen}
	if c.Sample > 0 {
		some.Sample(c.Sample, c.Seed)
	} else if c.Limit > 0 && c.Limit < len(c.chosen) {
		some.Evaluations = slices.Clone(c.chosen[:c.Limit])
	}
	c.chosen, c.size = some.Evaluations, 0
	for _, e := range c.chosen {
		c.size += sizeOf(e)
	}
	if c.size > c.most/2 {
		return c.tooMany(len(c.chosen))
	}
	return nil
}

// Done returns the chosen evaluations in the order in which they were added. An id or a tag that
// nothing has is an error that names the nearest one, and so is a pattern that matches nothing.
func (c *Choice) Done() ([]Evaluation, error) {
	var unknown []string
	for _, id := range c.IDs {
		if !c.ids[strings.ToLower(id)] {
			unknown = append(unknown,
				fmt.Sprintf("the set %q has no evaluation with the id %q%s", c.set.Name, id,
					input.Suggest(id, c.names)))
		}
	}
	if len(unknown) > 0 {
		return nil, fmt.Errorf("%s; it has %s", strings.Join(unknown, "; "), abridged(c.names, c.added))
	}
	if c.matched == 0 && c.Pattern != "" {
		return nil, fmt.Errorf("no evaluation of the set %q matches %q; it has %s", c.set.Name, c.Pattern,
			abridged(c.names, c.added))
	}
	all := slices.Sorted(maps.Keys(c.tags))
	for _, tag := range c.Tags {
		if !c.tags[tag] {
			if len(all) == 0 {
				return nil, fmt.Errorf("no evaluation of the set %q has the tag %q; none has any tag", c.set.Name, tag)
			}
			return nil, fmt.Errorf("no evaluation of the set %q has the tag %q%s; there are the tags %s", c.set.Name,
				tag, input.Suggest(tag, all), abridged(all, len(all)))
		}
	}
	slices.SortFunc(c.best, func(a, b drawn) int { return a.place - b.place })
	for _, one := range c.best {
		c.chosen = append(c.chosen, one.Evaluation)
	}
	return c.chosen, nil
}

// Added returns how many evaluations were added.
func (c *Choice) Added() int { return c.added }

// Dropped reports whether Limit or Sample have been applied already, because there were so many.
func (c *Choice) Dropped() bool { return c.dropped }

// Sample keeps n evaluations by chance, in the order of the set. The same seed chooses the same
// ones of the same set, whatever their order; if the set has changed, as many of them as possible.
func (s *Set) Sample(n int, seed uint64) {
	if n >= len(s.Evaluations) {
		return
	}
	ranks := make([]drawn, len(s.Evaluations))
	for i, e := range s.Evaluations {
		ranks[i] = drawn{e, rank(e.ID, seed), i}
	}
	slices.SortFunc(ranks, func(a, b drawn) int { return bytes.Compare(a.rank[:], b.rank[:]) })
	chosen := map[string]bool{}
	for _, one := range ranks[:n] {
		chosen[one.ID] = true
	}
	s.Evaluations = slices.DeleteFunc(slices.Clone(s.Evaluations), func(e Evaluation) bool { return !chosen[e.ID] })
}

// rank decides which evaluations a sample has: those with the lowest.
func rank(id string, seed uint64) [sha256.Size]byte {
	return sha256.Sum256(append(binary.BigEndian.AppendUint64(nil, seed), id...))
}

func matchesPattern(e Evaluation, pattern string) bool {
	for _, text := range []string{e.ID, e.Name} {
		if ok, _ := path.Match(pattern, text); ok || strings.Contains(text, pattern) { // the pattern was checked before
			return true
		}
	}
	return false
}

// sizeOf is about how much memory an evaluation takes, in bytes.
func sizeOf(e Evaluation) int {
	n := 500 + len(e.Inputs) + len(e.ExpectedOutput)
	for _, criteria := range e.Criteria {
		n += 100 + len(criteria)
	}
	return n
}

// abridged lists ids for a message: the first ones, and how many more of all there are.
func abridged(ids []string, all int) string {
	const most = 20
	if len(ids) > most {
		return fmt.Sprintf("%s and %d more", input.List(ids[:most]), all-most)
	}
	return input.List(ids)
}
