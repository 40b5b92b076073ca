package verdict

import (
	"fmt"
	"strconv"
	"strings"
)

// Accept says what a run may lack and still pass. The zero value accepts nothing.
type Accept struct {
	// Faulted is how many rollouts may fault, EvaluatorErrors how often evaluators may fail.
	Faulted         Tolerance
	EvaluatorErrors Tolerance
	// Unscored accepts evaluations that no evaluator could score.
	Unscored bool
	// NotRun accepts evaluators that could not be run: the thresholds are judged without them.
	NotRun bool
	// Suspended judges the thresholds although rollouts wait.
	Suspended bool
}

// Tolerance is how many things of a kind may go wrong. The zero value allows none.
type Tolerance struct {
	count int
	share float64
	isPct bool
}

// ParseTolerance reads a number N or a share P%.
func ParseTolerance(text string) (Tolerance, error) {
	if pct, ok := strings.CutSuffix(text, "%"); ok {
		share, err := strconv.ParseFloat(pct, 64)
		if err != nil || !(share >= 0 && share <= 100) { // NaN is neither
			return Tolerance{}, fmt.Errorf("expected a number N or a share from 0%% to 100%%, got %q", text)
		}
		return Tolerance{share: share / 100, isPct: true}, nil
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 0 {
		return Tolerance{}, fmt.Errorf("expected a number N or a share P%%, got %q", text)
	}
	return Tolerance{count: n}, nil
}

func (t Tolerance) exceeded(n, total int) bool {
	if t.isPct {
		return float64(n) > t.share*float64(total)
	}
	return n > t.count
}
