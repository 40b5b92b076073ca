package images

import (
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/evalrun/evalrun/internal/sandbox"
	"github.com/evalrun/evalrun/internal/testenv"
)

// Given an evalrun that is killed at any moment while a rollout starts in its image, is suspended, is
// gone on with or verified, and while images are collected, then the next command goes on from there,
// and nothing is left of what was killed. It does not run beside other tests: it looks at all that
// this machine has.
func TestKilledAtAnyMoment(t *testing.T) {
	for _, w := range []way{asImage, asPodman, asUser, asDocker} {
		t.Run(string(w), func(t *testing.T) {
			kills := 4
			if w == asDocker {
				kills = 1 // a life of a rollout has three, and takes longer
			}
			kills = killsOf(t, kills, 25)
			v := newVictim(t, w, seeded(t))
			for n := 0; v.kills < kills; n++ {
				if w == asDocker { // the daemon keeps the image of the life before
					v.newImage(n)
				}
				v.live(fmt.Sprint("r", n))
			}
		})
	}
}

// killsOf is how often a test kills: usually, or in its long form, or as the environment says.
func killsOf(t *testing.T, usual, long int) int {
	t.Helper()
	if n, err := strconv.Atoi(os.Getenv("EVALRUN_IMAGES_KILLS")); err == nil {
		return n
	}
	if os.Getenv(testenv.Long) != "" {
		return long
	}
	return usual
}

// seeded are random numbers, the same for the same EVALRUN_SEED.
func seeded(t *testing.T) *rand.Rand {
	t.Helper()
	seed := uint64(time.Now().UnixNano())
	if given, err := strconv.ParseUint(os.Getenv("EVALRUN_SEED"), 10, 64); err == nil {
		seed = given
	}
	t.Logf("EVALRUN_SEED=%d", seed)
	return rand.New(rand.NewPCG(seed, 0))
}

// victim is a task whose evalrun is killed again and again.
type victim struct {
	*task
	random *rand.Rand
	tmp    string
	kills  int
	// dockerfile is that of the task, without what differs from one life to the next.
	dockerfile string
}

func newVictim(t *testing.T, w way, random *rand.Rand) *victim {
	test, work := `[ "$(cat /opt/b)" = once ]; [ ! -e /bin/whoami ]; [ "$(cat /data/b)" = once ]`, "echo once >>/opt/b; echo once >>/data/b; rm /bin/whoami"
	var k *task
	if w == asDocker { // a service has a volume beside those of the image
		k = withStore(t, w, "", test+`; [ "$(ask words)" = once ]`)
		work += "; bash -c 'exec 3<>/dev/tcp/store/8000; echo put once >&3; read -r answer <&3'"
		k.write("environment/Dockerfile", testenv.ReadFile(t, k.path("environment/Dockerfile"))+"VOLUME /data\n")
	} else {
		k = newTask(t, w, plain, "WORKDIR /app\nVOLUME /data\n", "", test)
	}
	k.write("instruction.md", "[[RUN "+work+"]] [[ASK execute go {\"n\":1}]] [[SAY first]]\n")
	k.write("../agent.json", `{"name": "a", "type": "acp", "command": ["acp-agent"], "permissions": "suspend"}`)
	v := &victim{task: k, random: random, tmp: filepath.Join(k.dir, "t"), dockerfile: testenv.ReadFile(t, k.path("environment/Dockerfile"))}
	if err := os.Mkdir(v.tmp, 0o700); err != nil {
		t.Fatal(err)
	}
	k.env = append(k.env, "EVALRUN_IMAGES="+filepath.Join(k.dir, "images"), "TMPDIR="+v.tmp, "EVALRUN_LEASE=900ms")
	return v
}

// newImage changes the task's Dockerfile, so that its image is built again.
func (v *victim) newImage(n int) {
	v.t.Helper()
	v.write("environment/Dockerfile", fmt.Sprintf("%sRUN [\"/bin/bash\", \"-c\", \"echo %d >/built\"]\n", v.dockerfile, n))
}

// live has a rollout suspended, gone on with and verified, and collects its image. Each of these
// commands is killed at first, and then run to its end.
func (v *victim) live(id string) {
	run := []string{"run", "--isolation", v.isolation, "--run-id", id, "-o", "results.json", "--agent", "agent.json", "task"}
	v.kill(run...)
	v.evalrun(75, run...)
	v.nothingLeft("a suspension")
	v.evalrun(0, "approve", v.trigger(id))
	v.kill("resume", "-o", "results.json", id)
	v.evalrun(0, "run", "--wait", "--isolation", v.isolation, "--run-id", id, "-o", "results.json", "--agent", "agent.json", "task")
	if r := v.results(); r.Score == nil || *r.Score != 1 {
		v.t.Errorf("%s: %+v\n%s", id, r, v.log())
	}
	v.nothingLeft("the end of a run")
	if left, _ := filepath.Glob(filepath.Join(v.dir, ".evalrun/work/*")); len(left) > 0 {
		v.t.Errorf("%s: folders are left of a final run: %v", id, left)
	}
	v.kill("images", "gc", "--older", "0s")
	v.evalrun(0, "images", "gc", "--older", "0s")
	v.nothingLeft("a collection")
	if v.way == asDocker {
		if left, err := client(v.t).ListVolumes(v.t.Context(), "dev.evalrun.programs"); err != nil || len(left) > 0 {
			v.t.Errorf("%s: volumes with programs are left after a collection: %v, %v", id, left, err)
		}
	}
	for _, pattern := range []string{"layers/*", "images/*", "keys/*", "pins/*", "storage"} {
		if left, _ := filepath.Glob(filepath.Join(v.dir, "images", pattern)); len(left) > 0 {
			v.t.Errorf("%s: left after a collection: %v", id, left)
		}
	}
}

// kill runs evalrun and kills it at any moment.
func (v *victim) kill(args ...string) {
	v.t.Helper()
	cmd := v.command(args...)
	if err := cmd.Start(); err != nil {
		v.t.Fatal(err)
	}
	within := 2500 * time.Millisecond
	if v.way == asDocker {
		within = 6 * time.Second
	}
	time.Sleep(time.Duration(v.random.Int64N(int64(within)))) // any moment will do
	_ = cmd.Process.Kill()                                    // it may have ended
	_ = cmd.Wait()
	v.kills++
}

// nothingLeft finds what must not be there when no evalrun runs: mounts, processes, containers and
// folders.
func (v *victim) nothingLeft(after string) {
	v.t.Helper()
	for line := range strings.Lines(testenv.ReadFile(v.t, "/proc/self/mounts")) {
		if strings.Contains(line, v.dir) {
			v.t.Errorf("after %s a mount is left: %s", after, line)
		}
	}
	var processes []string
	if !testenv.Eventually(func() bool { processes = v.processes(); return len(processes) == 0 }) { // a question to podman ends by itself
		v.t.Errorf("after %s processes are left: %q", after, processes)
	}
	if v.way == asDocker {
		v.noServices(after)
	}
	if v.isolation == sandbox.IsolationPodman {
		for _, kind := range []string{"ps -a", "volume ls"} {
			out, err := exec.Command("podman", append(strings.Fields(kind), "-q")...).CombinedOutput()
			if err != nil || len(out) > 0 {
				v.t.Errorf("after %s podman has left of %s: %v\n%s", after, kind, err, out)
			}
		}
	}
	for _, pattern := range []string{v.tmp + "/*", v.dir + "/images/tmp/*", v.dir + "/.evalrun/work/*/root/*"} {
		if left, _ := filepath.Glob(pattern); len(left) > 0 {
			v.t.Errorf("after %s folders are left: %v", after, left)
		}
	}
}

// processes are the command lines of the processes that evalrun has started, or that these have.
func (v *victim) processes() (lines []string) {
	files, _ := filepath.Glob("/proc/[0-9]*/environ") // the pattern is valid
	for _, file := range files {
		environ, _ := os.ReadFile(file) // it may have ended
		if strings.Contains(string(environ), v.tmp) {
			line, _ := os.ReadFile(filepath.Join(filepath.Dir(file), "cmdline"))
			lines = append(lines, string(line))
		}
	}
	return lines
}
