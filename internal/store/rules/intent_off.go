//go:build nointent

package rules

import "github.com/evalrun/evalrun/internal/store"

// intendedBecomes is the state of a trigger whose job is about to be started, committed before the
// call that starts it. It is left out only in a build of the crash suite, which must then fail.
const intendedBecomes = store.TriggerIntended
