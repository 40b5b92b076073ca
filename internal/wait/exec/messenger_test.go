package exec

import (
	"os"
	"slices"
	"testing"

	"github.com/evalrun/evalrun/internal/files"
	"github.com/evalrun/evalrun/internal/testenv"
	"github.com/evalrun/evalrun/internal/wake"
)

func TestJobsTellThatTheyAreDone(t *testing.T) {
	r := newRig(t, `echo '"done"'`)
	told := make(chan string, 4)
	stop, err := Listen(r.options.StoreDir, func(id string) { told <- id })
	if err != nil {
		t.Fatal(err)
	}
	for _, message := range []string{"rubbish", "", "job", "job one two", "job first\n"} {
		wake.Tell(files.Store(r.options.StoreDir).JobsWake(), message)
	}
	r.start()
	got := []string{testenv.Receive(t, told, "the first message"), testenv.Receive(t, told, "the end of the job")}
	if want := []string{"first", r.p.TriggerID}; !slices.Equal(got, want) {
		t.Errorf("it was told of %q, expected %q", got, want)
	}
	if err := stop(); err != nil {
		t.Error(err)
	}
	if left, err := os.ReadDir(files.Store(r.options.StoreDir).JobsWake()); err != nil || len(left) != 1 {
		t.Errorf("there is %v, %v; expected the socket of the test alone", left, err)
	}
}
