package web

import (
	"slices"
	"sync"
)

// maxRemembered is how many comparisons, and how many pages of rollouts, are remembered.
const maxRemembered = 8

// remembered keeps what was made last, at most so many. What it keeps is not changed by whoever gets it.
type remembered[V any] struct {
	most int

	mu     sync.Mutex
	values map[string]V
	// used has the keys, those that were asked for last at the end.
	used []string
}

// of is what is kept under a key, or what is made now. Two who ask at once may make it twice.
func (m *remembered[V]) of(key string, make func() (V, error)) (V, error) {
	m.mu.Lock()
	v, ok := m.values[key]
	m.use(key, ok)
	m.mu.Unlock()
	if ok {
		return v, nil
	}
	v, err := make()
	if err != nil {
		return v, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.values == nil {
		m.values = map[string]V{}
	}
	m.values[key] = v
	m.use(key, true)
	for len(m.used) > m.most {
		delete(m.values, m.used[0])
		m.used = m.used[1:]
	}
	return v, nil
}

// use notes that a key was asked for, if it is known. m.mu is held.
func (m *remembered[V]) use(key string, known bool) {
	if i := slices.Index(m.used, key); i >= 0 {
		m.used = slices.Delete(m.used, i, i+1)
	}
	if known {
		m.used = append(m.used, key)
	}
}
