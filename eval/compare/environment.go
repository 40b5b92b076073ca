package compare

import (
	"fmt"
	"slices"
	"strings"
)

// environmentDifferences lists the evaluations whose tasks, or the images in which they ran, are not
// the same on both sides. Only those count of which both sides know them.
func (d *Document) environmentDifferences(pairs []pair) {
	tasks, images := newDifferent(), newDifferent()
	for _, p := range pairs {
		tasks.add(p.a.EvaluationID, list(p.a.Task), list(p.b.Task))
		images.add(p.a.EvaluationID, p.a.Images, p.b.Images)
	}
	for _, one := range []struct {
		format string
		*different
	}{
		{"tasks: %d of %d evaluations have other files: %s", tasks},
		{"images: %d of %d evaluations ran in another image: %s", images},
	} {
		if len(one.named) > 0 {
			d.PlanDifferences = append(d.PlanDifferences,
				fmt.Sprintf(one.format, len(one.named), len(one.known), abridged(one.named)))
		}
	}
}

func list(digest string) []string {
	if digest == "" {
		return nil
	}
	return []string{digest}
}

// different collects the evaluations of which both sides know something, and names those of which it
// differs. An evaluation comes once for each agent.
type different struct {
	// known has the ids of all, with whether they differ.
	known map[string]bool
	named []string
}

func newDifferent() *different { return &different{known: map[string]bool{}} }

func (d *different) add(id string, a, b []string) {
	if len(a) == 0 || len(b) == 0 || d.known[id] {
		return
	}
	a, b = slices.Sorted(slices.Values(a)), slices.Sorted(slices.Values(b))
	d.known[id] = !slices.Equal(a, b)
	if d.known[id] {
		d.named = append(d.named, fmt.Sprintf("%s (%s in A, %s in B)", id, short(a), short(b)))
	}
}

// short are the beginnings of digests.
func short(digests []string) string {
	var out []string
	for _, digest := range digests {
		digest = strings.TrimPrefix(digest, "sha256:")
		out = append(out, digest[:min(12, len(digest))])
	}
	return strings.Join(out, " and ")
}
