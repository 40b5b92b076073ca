package store_test

import (
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/evalrun/evalrun/store"
)

// woken waits for a wake-up.
func woken(t *testing.T, s store.Store) []string {
	t.Helper()
	select {
	case jobs := <-s.Wake():
		return jobs
	case <-time.After(10 * time.Second):
		t.Fatal("it was not woken")
		return nil
	}
}

func TestCommitsWakeOtherProcesses(t *testing.T) {
	dir := t.TempDir()
	a, b := open(t, dir), open(t, dir)
	p := benchPlan(1)
	if _, err := a.CreateRun(t.Context(), p); err != nil {
		t.Fatal(err)
	}
	woken(t, b)
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

func TestJobsThatAreDoneWake(t *testing.T) {
	s := open(t, t.TempDir())
	sockets, err := filepath.Glob(filepath.Join(store.WakeDir(s.Dir()), "*.sock"))
	if err != nil || len(sockets) != 1 {
		t.Fatal(sockets, err)
	}
	conn, err := net.DialUnix("unixgram", nil, &net.UnixAddr{Name: sockets[0], Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	for _, text := range []string{"job one\n", "rubbish", "", "job two\n"} {
		if _, err := conn.Write([]byte(text)); err != nil {
			t.Fatal(err)
		}
	}
	var jobs []string
	for len(jobs) < 2 {
		jobs = append(jobs, woken(t, s)...)
	}
	if !slices.Equal(jobs, []string{"one", "two"}) {
		t.Fatal(jobs)
	}
}

func TestSocketsOfDeadProcessesAreRemoved(t *testing.T) {
	dir := t.TempDir()
	a, b := open(t, dir), open(t, dir)
	wake := store.WakeDir(dir)
	old := time.Now().Add(-time.Hour)
	for name, age := range map[string]time.Time{"stale.sock": old, "young.sock": time.Now()} {
		conn, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: filepath.Join(wake, name), Net: "unixgram"})
		if err != nil {
			t.Fatal(err)
		}
		if err := conn.Close(); err != nil {
			t.Fatal(err)
		}
		if err := os.Chtimes(filepath.Join(wake, name), age, age); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(wake, "notes.txt"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	entries, err := os.ReadDir(wake)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries { // all but young.sock are old, also those that are in use
		if e.Name() != "young.sock" {
			if err := os.Chtimes(filepath.Join(wake, e.Name()), old, old); err != nil {
				t.Fatal(err)
			}
		}
	}
	for range 3 {
		if _, err := a.CreateRun(t.Context(), benchPlan(1)); err != nil {
			t.Fatal(err)
		}
		woken(t, b)
	}
	left, err := os.ReadDir(wake)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, e := range left {
		names = append(names, e.Name())
	}
	if slices.Contains(names, "stale.sock") || !slices.Contains(names, "young.sock") || !slices.Contains(names, "notes.txt") || len(names) != 4 {
		t.Fatal(names)
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
	if entries, err := os.ReadDir(store.WakeDir(dir)); err != nil || len(entries) != 0 {
		t.Fatal(entries, err)
	}
}

func TestClosedStoreLeavesNoSocket(t *testing.T) {
	s := open(t, t.TempDir())
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	entries, err := os.ReadDir(store.WakeDir(s.Dir()))
	if err != nil || len(entries) != 0 {
		t.Fatal(entries, err)
	}
}
