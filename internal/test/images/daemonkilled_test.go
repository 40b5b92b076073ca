package images

import (
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/evalrun/evalrun/internal/fault"
	"github.com/evalrun/evalrun/internal/testenv"
)

// Given a daemon that is killed, or starts anew, at any moment while an image is built, a rollout starts, works,
// is suspended, is gone on with or verified, then that is never the agent's fault, what was suspended is
// gone on with, once, and nothing of evalrun's is left in the daemon.
func TestDaemonKilledAtAnyMoment(t *testing.T) {
	testenv.NeedDocker(t)
	kills := killsOf(t, 0, 20)
	if kills == 0 {
		testenv.NeedLong(t)
	}
	d, err := testenv.StartDocker(testenv.DockerRemote) // the other tests need theirs
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Log(d.Log())
		}
		if err := d.End(); err != nil {
			t.Error(err)
		}
	})
	v := &daemonVictim{victim: newVictim(t, asDocker, seeded(t)), daemon: d}
	v.env = append(v.env, "DOCKER_HOST="+d.Host)
	for n := 0; v.kills < kills; n++ {
		v.live(n)
	}
}

// daemonVictim is a task whose daemon is killed again and again.
type daemonVictim struct {
	*victim
	daemon *testenv.RemoteDocker
}

// live has a rollout suspended and gone on with, while its daemon ends. What that has faulted is run again.
func (v *daemonVictim) live(n int) {
	v.newImage(n)
	run := func(id string) []string {
		return []string{"run", "--isolation", v.isolation, "--run-id", id, "-o", "results.json", "--agent", "agent.json", "task"}
	}
	id := fmt.Sprint("first", n)
	if !v.outlives(75, run(id)...) {
		id = fmt.Sprint("second", n)
		v.evalrun(75, run(id)...)
	}
	v.evalrun(0, "approve", v.trigger(id))
	if !v.outlives(0, "resume", "-o", "results.json", id) {
		id = fmt.Sprint("third", n)
		v.evalrun(75, run(id)...)
		v.evalrun(0, "approve", v.trigger(id))
		v.evalrun(0, "resume", "-o", "results.json", id)
	}
	if r := v.results(); r.Score == nil || *r.Score != 1 {
		v.t.Errorf("%d: %+v\n%s", n, r, v.log())
	}
	// Whatever a daemon that ended has kept from being removed, the next evalrun that uses it removes.
	v.evalrun(0, "run", "--isolation", v.isolation, "--agent", "nop", "task")
	v.nothingLeft("a life")
	v.nothingInDaemon()
}

// outlives runs evalrun, and ends the daemon meanwhile. It reports whether it has ended with a code, as if nothing
// had been. Otherwise it must have said that its environment has failed.
func (v *daemonVictim) outlives(code int, args ...string) bool {
	v.t.Helper()
	cmd := v.command(args...)
	var out strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Start(); err != nil {
		v.t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	signal := syscall.SIGKILL
	if v.random.IntN(3) == 0 {
		signal = syscall.SIGTERM
	}
	pause := time.Duration(v.random.Int64N(int64(4 * time.Second)))
	time.Sleep(pause) // any moment will do
	if err := v.daemon.Restart(signal); err != nil {
		v.t.Fatal(err)
	}
	v.kills++
	select {
	case <-ended:
	case <-time.After(4 * time.Minute):
		_ = cmd.Process.Kill()
		v.t.Fatalf("evalrun %v has not ended after the daemon was ended by %v after %v\n%s", args, signal, pause, out.String())
	}
	got := cmd.ProcessState.ExitCode()
	v.t.Logf("%v after %v in evalrun %s: exit code %d", signal, pause, args[0], got)
	switch got {
	case code:
		return true
	case 2: // refused, since the daemon did not answer
		return false
	case 3:
		if r := v.results(); r.Error != nil && fault.Category(r.Error.Category).Owner() == fault.OwnerEnvironment && r.Score == nil {
			v.t.Logf("%s: %s", r.Error.Category, r.Error.Message)
			return false
		}
	}
	v.t.Fatalf("evalrun %v, %v after %v: exit code %d\n%s", args, signal, pause, got, out.String())
	return false
}

// nothingInDaemon finds what evalrun has left in the daemon, in which nobody else works: containers, volumes, networks,
// and images that are not gone when those that nobody uses are removed, as the docs say. What a daemon leaves of a
// build in which it ended has no labels, and is removed as Docker says.
func (v *daemonVictim) nothingInDaemon() {
	v.t.Helper()
	for _, kind := range []string{"containers", "volumes", "networks"} {
		v.ask(http.MethodPost, "/"+kind+"/prune?"+url.Values{"filters": {`{"label!":["` + labelOwner + `"]}`}}.Encode(), nil)
	}
	v.ask(http.MethodPost, "/images/prune?"+url.Values{"filters": {`{"dangling":["false"]}`}}.Encode(), nil)
	var containers []struct{ ID, Image string }
	var volumes struct{ Volumes []struct{ Name string } }
	var networks []struct{ Name string }
	var images []struct{ ID string }
	v.ask(http.MethodGet, "/containers/json?all=1", &containers)
	v.ask(http.MethodGet, "/volumes", &volumes)
	v.ask(http.MethodGet, "/networks", &networks)
	v.ask(http.MethodGet, "/images/json?all=1", &images)
	if len(containers) > 0 || len(volumes.Volumes) > 0 || len(networks) != 3 || len(images) > 0 {
		v.t.Errorf("left in the daemon: containers %v, volumes %v, networks %v, images %v", containers, volumes.Volumes, networks, images)
	}
}

// labelOwner is the label of what evalrun makes in a daemon.
const labelOwner = "dev.evalrun.owner"

// ask asks the daemon.
func (v *daemonVictim) ask(method, path string, into any) {
	v.t.Helper()
	if err := v.daemon.Ask(v.t.Context(), method, path, into); err != nil {
		v.t.Fatal(err)
	}
}
