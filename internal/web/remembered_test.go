package web

import (
	"errors"
	"testing"
)

// W6: what is asked for again is not made again, unless others were asked for since; an error is not kept.
func TestWhatWasMadeLastIsRemembered(t *testing.T) {
	t.Parallel()
	m := remembered[int]{most: 2}
	made := 0
	ask := func(key string, err error) {
		_, _ = m.of(key, func() (int, error) { made++; return made, err })
	}
	for _, one := range []struct {
		key  string
		err  error
		made int
	}{{"a", nil, 1}, {"a", nil, 1}, {"b", errors.New("no"), 2}, {"b", nil, 3}, {"a", nil, 3}, {"c", nil, 4}, {"a", nil, 4}, {"b", nil, 5}, {"c", nil, 6}} {
		if ask(one.key, one.err); made != one.made {
			t.Fatalf("%s: %d were made, want %d", one.key, made, one.made)
		}
	}
}
