package doctor

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"
)

// What every machine should have is broken if it is not there, and everything else is missing.
func TestLacks(t *testing.T) {
	no := func(context.Context) (string, error) { return "", errors.New("not there") }
	for _, needed := range []bool{false, true} {
		got := check{name: "x", means: "m", mend: "w", needed: needed, look: no}.finding(t.Context())
		want := Finding{Name: "x", Status: Missing, Found: "not there", Means: "m", Mend: "w"}
		if needed {
			want.Status = Broken
		}
		if got != want {
			t.Errorf("got %+v, want %+v", got, want)
		}
	}
}

// Each check says what its lack means and what mends it, and its name is its own.
func TestChecks(t *testing.T) {
	o := Options{Store: t.TempDir()}
	for _, c := range o.checks() {
		if c.means == "" || c.mend == "" {
			t.Errorf("%s does not say what its lack means, or what mends it", c.name)
		}
	}
	names := o.Names()
	slices.Sort(names)
	if len(slices.Compact(slices.Clone(names))) != len(names) {
		t.Errorf("a name comes twice: %v", names)
	}
}

// A clock that is before the commit of the program is wrong, and a folder that is not there yet is
// looked for upward.
func TestClock(t *testing.T) {
	o := Options{Store: t.TempDir() + "/not/yet"}
	if found, err := o.clock(t.Context()); err != nil || found == "" {
		t.Errorf("got %q, %v", found, err)
	}
	o.Built = time.Now().AddDate(1, 0, 0).UTC().Format(time.RFC3339)
	if _, err := o.clock(t.Context()); err == nil || !strings.Contains(err.Error(), "before this program was made ("+o.Built) {
		t.Errorf("got %v", err)
	}
}
