package crash

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/evalrun/evalrun/internal/testenv"
)

// stopsPerRun is how often the processes of one run are stopped, runsAtOnce how many runs there are
// at a time.
const (
	stopsPerRun = 8
	runsAtOnce  = 4
)

// mostDelay is how long a slow service takes before it does something, and again before it answers.
const mostDelay = 300 * time.Millisecond

// TestStopsHarmNothing stops process after process in every way in which a person or a machine does:
// with SIGTERM, with SIGINT, with a second one, and by --wait-timeout. The processes are run, resume,
// executor and serve, and every service that they use is slow, so that most stops meet a request that
// is on its way. No stop makes a fault, not even start-unknown, and nothing is started twice. R21
//
// EVALRUN_STOPS is how many stops there are, EVALRUN_SEED what the decisions are made of.
func TestStopsHarmNothing(t *testing.T) {
	stops := number(t, "EVALRUN_STOPS", 0)
	if stops == 0 {
		testenv.NeedLong(t)
		stops = 60
	}
	// A shell has what it starts in the background ignore SIGINT. What is caught here is the default there.
	ignored := make(chan os.Signal, 1)
	signal.Notify(ignored, os.Interrupt)
	defer signal.Stop(ignored)
	seed := uint64(number(t, "EVALRUN_SEED", int(rand.Uint32())))
	t.Logf("EVALRUN_SEED=%d: %d stops", seed, stops)
	all := kinds()
	all[0].scenario = func(t *testing.T) *scenario { return newLargeScenario(t, "failpoint", 3) }
	all = append(all, kind{"judged", func(t *testing.T) *scenario { return newSlowlyJudgedScenario(t, false) }, 1},
		kind{"batches", func(t *testing.T) *scenario { return newSlowlyJudgedScenario(t, true) }, 1})
	var done atomic.Int64
	var ways sync.Map
	for n := 0; int(done.Load()) < stops && !t.Failed(); n += runsAtOnce {
		t.Run(fmt.Sprint("runs from ", n), func(t *testing.T) {
			for i := range runsAtOnce {
				kind := all[(n+i)/2%len(all)]
				if i%2 == 0 {
					kind = all[0] // that with most sources
				}
				t.Run(fmt.Sprint(n+i, " ", kind.name), func(t *testing.T) {
					t.Parallel()
					for _, way := range stopARun(t, kind, rand.New(rand.NewPCG(seed, uint64(n+i)))) {
						done.Add(1)
						count, _ := ways.LoadOrStore(way, new(atomic.Int64))
						count.(*atomic.Int64).Add(1)
					}
				})
			}
		})
	}
	ways.Range(func(way, count any) bool {
		t.Logf("%4d %s", count.(*atomic.Int64).Load(), way)
		return true
	})
	t.Logf("%d processes were stopped", done.Load())
}

// stopARun has a run of a kind stopped a few times, and says how.
func stopARun(t *testing.T, kind kind, random *rand.Rand) (ways []string) {
	s := &stopped{scenario: kind.scenario(t), random: random}
	s.slow()
	for range stopsPerRun {
		way, over := s.stop()
		if over {
			break
		}
		ways = append(ways, way)
	}
	s.finish(s.environ...)
	for _, wrong := range s.violations() {
		t.Errorf("%s\n%s", wrong, s.log.String())
	}
	if s.judged {
		s.checkVerdicts()
	}
	return ways
}

// stopped is a scenario whose processes are stopped.
type stopped struct {
	*scenario
	random *rand.Rand
	// created says that the run is there. log is what the stopped processes have said.
	created bool
	log     bytes.Buffer
}

// slow makes the services of the scenario slow.
func (s *stopped) slow() {
	s.noFault = true
	if s.service != nil {
		s.service.slow.Store(true)
	}
	if s.called == nil {
		return
	}
	path := filepath.Join(s.dir, "mcp.json")
	data, err := os.ReadFile(path)
	if err != nil {
		s.t.Fatal(err)
	}
	var config struct {
		MCPServers map[string]map[string]string `json:"mcpServers"`
	}
	if err := json.Unmarshal(data, &config); err != nil {
		s.t.Fatal(err)
	}
	for _, server := range config.MCPServers {
		server["url"] = slowly(s.t, server["url"])
	}
	s.write("mcp.json", map[string]any{"mcpServers": config.MCPServers})
}

// slowly starts a slow server before the one at a URL, and returns the URL there.
func slowly(t *testing.T, behind string) string {
	t.Helper()
	u, err := url.Parse(behind)
	if err != nil {
		t.Fatal(err)
	}
	proxy := httputil.NewSingleHostReverseProxy(&url.URL{Scheme: u.Scheme, Host: u.Host})
	proxy.ModifyResponse = func(*http.Response) error { delay(); return nil }
	proxy.ErrorHandler = func(w http.ResponseWriter, _ *http.Request, _ error) { w.WriteHeader(http.StatusBadGateway) }
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		delay()
		proxy.ServeHTTP(w, r.WithContext(t.Context())) // what was asked is done, also if nobody listens any more
	}))
	t.Cleanup(server.CloseClientConnections)
	return strings.Replace(behind, u.Scheme+"://"+u.Host, server.URL, 1)
}

// delay is what makes a service slow. It waits for nothing: time is what it is about.
func delay() { time.Sleep(time.Duration(rand.Int64N(int64(mostDelay)))) }

// stop starts a process and stops it some time later. It reports how, or that the run was over
// before.
func (s *stopped) stop() (how string, over bool) {
	s.t.Helper()
	command := "run"
	if s.created {
		command = []string{"run", "resume", "executor", "serve"}[s.random.IntN(4)]
	}
	way := []string{"SIGTERM", "SIGINT", "SIGTERM twice", "--wait-timeout"}[s.random.IntN(4)]
	after := time.Duration(100+s.random.IntN(1100)) * time.Millisecond
	cmd := s.command(s.environ...)
	switch command {
	case "resume":
		cmd.Args = []string{s.program, "resume", "--wait", "-j", "4", runID}
	case "executor":
		cmd.Args = []string{s.program, "executor", "-j", "4"}
	case "serve":
		cmd.Args = []string{s.program, "serve", "-j", "4", "--listen", "127.0.0.1:0"}
	}
	waits := way == "--wait-timeout" && (command == "run" || command == "resume")
	if waits {
		cmd.Args = append(cmd.Args, "--wait-timeout", after.String())
	} else if way == "--wait-timeout" {
		way = "SIGTERM"
	}
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Start(); err != nil {
		s.t.Fatal(err)
	}
	signals := s.signals(cmd, way, after)
	stuck := time.AfterFunc(2*time.Minute, func() { _ = cmd.Process.Signal(syscall.SIGQUIT) })
	err := cmd.Wait()
	for _, timer := range signals {
		timer.Stop()
	}
	if !stuck.Stop() {
		s.t.Errorf("%s did not end after %s\n%s", command, way, out.String())
	}
	fmt.Fprintf(&s.log, "— %s, %s after %v: %v\n%s", command, way, after, err, out.String())
	_, statErr := os.Stat(filepath.Join(s.dir, ".evalrun", "runs", runID))
	s.created = statErr == nil
	if strings.HasSuffix(way, "twice") {
		s.kills++
	}
	return command + ", " + way, err == nil && (command == "run" || command == "resume")
}

// signals has a process sent the signals of a way to stop it.
func (s *stopped) signals(cmd *exec.Cmd, way string, after time.Duration) []*time.Timer {
	send := func(signal os.Signal, after time.Duration) *time.Timer {
		return time.AfterFunc(after, func() { _ = cmd.Process.Signal(signal) })
	}
	switch way {
	case "SIGINT":
		return []*time.Timer{send(os.Interrupt, after)}
	case "SIGTERM":
		return []*time.Timer{send(syscall.SIGTERM, after)}
	case "SIGTERM twice":
		return []*time.Timer{send(syscall.SIGTERM, after), send(syscall.SIGTERM, after+time.Duration(s.random.IntN(400))*time.Millisecond)}
	}
	return nil
}

// newSlowlyJudgedScenario is a scenario of judges whose provider is slow.
func newSlowlyJudgedScenario(t *testing.T, batches bool) *scenario {
	t.Helper()
	judges := map[string]any{}
	if batches {
		judges["batch"] = map[string]any{"enabled": true, "interval": "20ms"}
	}
	s, environ, _, _ := newJudgedBy(t, judges, false)
	s.judged, s.results, s.score = true, 2, 0.75
	for _, set := range environ {
		name, value, _ := strings.Cut(set, "=")
		if strings.HasPrefix(value, "http://") {
			value = slowly(t, value)
		}
		s.environ = append(s.environ, name+"="+value)
	}
	return s
}
