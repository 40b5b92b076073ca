package sqlite_test

import (
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/evalrun/evalrun/internal/files"
	"github.com/evalrun/evalrun/internal/store"
	"github.com/evalrun/evalrun/internal/store/sqlite"
	"github.com/evalrun/evalrun/internal/testenv"
)

// woken waits for a wake-up.
func woken(t *testing.T, s *sqlite.Store) store.WakeUp {
	t.Helper()
	return testenv.Receive(t, s.Wake(), "the wake-up")
}

func TestCommitsWakeOtherProcesses(t *testing.T) {
	dir := t.TempDir()
	a, b := open(t, dir), open(t, dir)
	p := benchPlan(1)
	if _, err := a.CreateRun(t.Context(), p); err != nil {
		t.Fatal(err)
	}
	if up := woken(t, b); !slices.Equal(up.Runs, []string{p.RunID}) || up.Unnamed {
		t.Errorf("R6: it was told of %+v, not only of %s", up, p.RunID)
	}
	claims, err := b.Claim(t.Context(), "", 1)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := b.CommitSegment(t.Context(), claims[0].Token, store.SegmentEnd{Outcome: store.OutcomeSuspended,
		Triggers: []store.NewTrigger{{InterruptID: "i", Source: "inbox", ItemKey: "k"}}}); err != nil {
		t.Fatal(err)
	}
	woken(t, a)
	if _, err := a.Deliver(t.Context(), store.Delivery{Source: "inbox", ItemKey: "k", Status: store.StatusSuccessful}); err != nil {
		t.Fatal(err)
	}
	woken(t, b)
	if _, err := a.Cancel(t.Context(), p.RunID); err != nil {
		t.Fatal(err)
	}
	woken(t, b)
	select {
	case <-a.Wake():
		t.Error("a was woken by its own commits")
	default:
	}
}

// R10. Whoever opens a store or commits removes the sockets of processes that were killed, and no
// others.
func TestSocketsOfDeadProcessesAreRemoved(t *testing.T) {
	dir := t.TempDir()
	a := open(t, dir)
	wake := files.Store(dir).Wake()
	leave := func() string {
		t.Helper()
		path := filepath.Join(wake, "-stale.sock") // told before all others
		conn, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
		if err != nil {
			t.Fatal(err)
		}
		if err := conn.Close(); err != nil {
			t.Fatal(err)
		}
		if _, err := os.Lstat(path); err != nil {
			t.Fatal(err)
		}
		return path
	}
	if err := os.WriteFile(filepath.Join(wake, "notes.txt"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	stale := leave()
	b := open(t, dir)
	if _, err := os.Lstat(stale); err == nil {
		t.Error("opening the store has left the stale socket")
	}
	leave()
	if _, err := a.CreateRun(t.Context(), benchPlan(1)); err != nil {
		t.Fatal(err)
	}
	woken(t, b)
	left, err := os.ReadDir(wake)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range left {
		if e.Name() == "-stale.sock" {
			t.Error("a commit has left the stale socket")
		}
	}
	if len(left) != 3 {
		t.Errorf("there is %v; expected two sockets and notes.txt", left)
	}
}

func TestStoreWithoutSockets(t *testing.T) {
	dir := filepath.Join(t.TempDir(), strings.Repeat("long/", 30))
	a, b := open(t, dir), open(t, dir)
	if _, err := a.CreateRun(t.Context(), benchPlan(1)); err != nil {
		t.Fatal(err)
	}
	select {
	case <-b.Wake():
		t.Error("woken without a socket")
	default:
	}
	if entries, err := os.ReadDir(files.Store(dir).Wake()); err != nil || len(entries) != 0 {
		t.Fatal(entries, err)
	}
}

func TestChangesAreToldWithoutSocketsTooIfLater(t *testing.T) {
	dir := filepath.Join(t.TempDir(), strings.Repeat("long/", 30))
	a, b := open(t, dir), open(t, dir)
	b.Look() // the first look cannot know
	changed := b.Changed("")
	b.Look()
	select {
	case <-changed:
		t.Error("it was told of a change that nobody made")
	default:
	}
	if _, err := a.CreateRun(t.Context(), benchPlan(1)); err != nil {
		t.Fatal(err)
	}
	b.Look()
	testenv.Receive(t, changed, "a commit that no message has told of")
}

func TestClosedStoreLeavesNoSocket(t *testing.T) {
	s := open(t, t.TempDir())
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	entries, err := os.ReadDir(files.Of(s).Wake())
	if err != nil || len(entries) != 0 {
		t.Fatal(entries, err)
	}
}
