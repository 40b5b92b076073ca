package web

import (
	"slices"
	"sync"
)

// maxRemembered is the most comparisons, and the most pages of rollouts, that are cached.
const maxRemembered = 8

// remembered caches the values that were used last, at most most of them. Callers must not change
// its values.
type remembered[V any] struct {
	most int

	mu     sync.Mutex
	values map[string]V
	// used has the keys, the most recently used at the end.
	used []string
}

// of returns the value of a key, or makes it. Two callers at once may make it twice.
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

// use notes that a key was used, if it is known. m.mu is held.
func (m *remembered[V]) use(key string, known bool) {
	if i := slices.Index(m.used, key); i >= 0 {
		m.used = slices.Delete(m.used, i, i+1)
	}
	if known {
		m.used = append(m.used, key)
	}
}
