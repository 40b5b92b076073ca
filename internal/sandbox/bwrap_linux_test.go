package sandbox

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/evalrun/evalrun/internal/cgroup"
)

// say runs a script in a space and returns what it has printed.
func say(t *testing.T, s *Config, script string) string {
	t.Helper()
	c := inSpace(t, s, "exec 2>&1; "+script)
	var out strings.Builder
	c.Stdout = &out
	exit, err := Run(t.Context(), c)
	if err != nil || !exit.State.Success() {
		t.Errorf("%s: %v, %+v", script, err, exit)
	}
	return strings.TrimSpace(out.String())
}

func TestBwrapHasTheFilesOfTheTaskAndNoOthers(t *testing.T) {
	s := bwrapSpace(t)
	tests, opt, secret := t.TempDir(), t.TempDir(), filepath.Join(must(os.UserHomeDir()), "."+unique(t))
	write(t, filepath.Join(tests, "test.sh"), "a test")
	write(t, filepath.Join(opt, "f"), "in opt")
	write(t, secret, "secret")
	t.Cleanup(func() { check(os.Remove(secret)) })
	s.Binds = append(s.Binds, Bind{Host: tests, Inside: "/tests"}, Bind{Host: opt, Inside: "/opt/task/data"}, Bind{Host: opt, Inside: "/etc/task"})

	if got := say(t, s, "echo made > out.txt; cat /tests/test.sh /opt/task/data/f /etc/task/f; pwd"); got != "a testin optin opt/app" {
		t.Errorf("got %q", got)
	}
	if got, err := os.ReadFile(filepath.Join(s.Binds[0].Host, "out.txt")); err != nil || string(got) != "made\n" {
		t.Errorf("got %q, %v", got, err)
	}
	if got := say(t, s, "ls / | grep -vx opt"); got != strings.Join(rootEntries("app", "tests"), "\n") {
		t.Errorf("in the root: %q", got)
	}
	for _, path := range []string{secret, "/root", "/home", "/srv", "/mnt", "/media", "/var/lib", s.Binds[0].Host, tests, must(os.Getwd())} {
		if got := say(t, s, "ls -d '"+path+"' 2>/dev/null || echo none"); got != "none" {
			t.Errorf("%s is seen", path)
		}
	}
	for _, path := range []string{"/x", "/usr/x", "/etc/x", "/tests/x", "/tests/test.sh", "/bin/sh", "/etc/passwd", "/proc/sys/kernel/core_pattern"} {
		if got := say(t, s, "(echo x >> '"+path+"') 2>/dev/null && echo written || echo refused"); got != "refused" {
			t.Errorf("%s: %s", path, got)
		}
	}
	for _, dir := range []string{"/tmp", "/var/tmp", "/run", "/dev/shm", "/app"} {
		if got := say(t, s, "ls "+dir+"; echo x > "+dir+"/x && cat "+dir+"/x"); !strings.HasSuffix(got, "x") || strings.Contains(got, "refused") {
			t.Errorf("%s: %q", dir, got)
		}
	}
	if got := say(t, s, "ls /tmp /var/tmp"); got != "/tmp:\n\n/var/tmp:" {
		t.Errorf("left in the folders for temporary files: %q", got)
	}
}

// rootEntries are what the root of a space holds.
func rootEntries(more ...string) []string {
	all := append([]string{"dev", "proc", "run", "tmp", "var"}, more...)
	for _, name := range []string{"bin", "etc", "lib", "lib32", "lib64", "libx32", "sbin", "usr"} {
		if _, err := os.Lstat("/" + name); err == nil {
			all = append(all, name)
		}
	}
	slices.Sort(all)
	return all
}

func TestBwrapHidesPathsWhereverTheyLie(t *testing.T) {
	s := bwrapSpace(t)
	host := t.TempDir()
	for _, name := range []string{"task/tests/t", "task/solution.sh", "task/seen", "store/db", "store/work/w", "store/agents/bin"} {
		write(t, filepath.Join(host, name), name)
	}
	at := func(name string) string { return filepath.Join(host, name) }
	check(os.Symlink(at("store"), at("link")))
	// Given a visible folder that holds everything, and the task once more as /task.
	s.Visible = []string{host, at("store/agents")}
	s.Binds = append(s.Binds, Bind{Host: at("task"), Inside: "/task", Writable: true}, Bind{Host: at("store/work"), Inside: "/work"},
		Bind{Host: at("store/work"), Inside: "/task/tests"})
	s.Hidden = []string{at("task/tests"), at("task/solution.sh"), at("link"), at("missing")}
	// Then what is hidden is seen nowhere, but for what is given of it by name.
	want := []string{"/task/seen", "/task/tests/w", "/work/w", at("store/agents/bin"), at("task/seen")}
	slices.Sort(want)
	if got := say(t, s, "grep -rl . "+host+" /task /work 2>/dev/null | LC_ALL=C sort"); got != strings.Join(want, "\n") {
		t.Errorf("got %q, want %q", got, want)
	}
	if got := say(t, s, "cat /task/solution.sh "+at("task/solution.sh")+"; true"); strings.Count(got, "Permission denied") != 2 {
		t.Errorf("got %q", got)
	}
}

func TestBwrapWithoutNetworkHasOnlyTheForwards(t *testing.T) {
	outside := must(net.Listen("tcp", "127.0.0.1:0"))
	defer outside.Close()
	go func() {
		for {
			c, err := outside.Accept()
			if err != nil {
				return
			}
			_, _ = io.WriteString(c, "outside\n")
			_ = c.Close()
		}
	}()
	_, port, _ := net.SplitHostPort(outside.Addr().String())
	reach := roleScript("dial", "127.0.0.1:"+port)

	s := bwrapSpace(t)
	if got := say(t, s, reach); !strings.Contains(got, "connection refused") {
		t.Errorf("without network: got %q", got)
	}
	if got := say(t, s, "cat /proc/net/dev | grep -c :"); got != "1" {
		t.Errorf("%s network devices, want only the loopback", got)
	}
	s.Network = true
	if got := say(t, s, reach); got != "outside" {
		t.Errorf("with network: got %q", got)
	}
	if conf, err := os.ReadFile("/etc/resolv.conf"); err == nil {
		if got := say(t, s, "cat /etc/resolv.conf"); got != strings.TrimSpace(string(conf)) {
			t.Errorf("resolver: got %q, want %q", got, conf)
		}
	}

	// A forward passes on each end by itself: the answer comes when the question is over.
	s.Network = false
	s.Forwards = []Forward{{Port: 8080, Socket: socket(t, func(c net.Conn) {
		defer c.Close()
		question, _ := io.ReadAll(c)
		_, _ = fmt.Fprintf(c, "%d bytes", len(question))
	})}}
	if got := say(t, s, roleScript("ask", "127.0.0.1:8080")); got != "3000000 bytes" {
		t.Errorf("forward: got %q", got)
	}
}

// What is in the space has no way to the sockets that lead into it: it could get past evalrun, or
// lead evalrun elsewhere.
func TestBwrapDoesNotShowTheSocketsThatLeadIn(t *testing.T) {
	s := bwrapSpace(t)
	s.Spawns = []Spawn{{Socket: place(t), Command: SetupCommand{Args: []string{"cat"}}}}
	got := say(t, s, "ls "+filepath.Dir(InsideExecutable)+"; ls "+s.Spawns[0].Socket+" 2>/dev/null; ls -l /proc/self/fd | grep -c socket:; grep -c ' /' /proc/net/unix; true")
	if got != filepath.Base(InsideExecutable)+"\n0\n0" {
		t.Errorf("got %q", got)
	}
}

// roleScript runs a role inside a space.
func roleScript(name string, args ...string) string {
	return fmt.Sprintf("%s=%s %s %s %s", roleVar, name, raceExit, InsideExecutable, strings.Join(args, " "))
}

func TestBwrapHasItsOwnProcessesAndUsers(t *testing.T) {
	s := bwrapSpace(t)
	for name := range strings.FieldsSeq("pid ipc uts net mnt") {
		if got := say(t, s, "readlink /proc/self/ns/"+name); got == must(os.Readlink("/proc/self/ns/"+name)) {
			t.Errorf("the %s namespace is that of this system", name)
		}
	}
	s.Hostname = "arena"
	if got := say(t, s, "ls /proc | grep -c '^[0-9]'; cat /proc/sys/kernel/hostname; tr '\\0' ' ' < /proc/1/cmdline"); !strings.HasSuffix(got, "\narena\n"+InsideExecutable+" "+initCommand) || len(got) > 80 {
		t.Errorf("got %q", got)
	}
	for user, want := range map[string]string{
		"":      strconv.Itoa(os.Geteuid()),
		"root":  "0 root",
		"agent": "1000 agent 1000 agent /app",
		"1234":  "1234 user 1234 user /app",
	} {
		s.User = user
		c := inSpace(t, s, `echo $(id -u) $(id -un) $(id -g) $(id -gn) $(awk -F: -v u=$(id -u) '$3 == u {print $6}' /etc/passwd); touch /app/"of-$(id -u)"; grep -c "^agent:" /etc/passwd`)
		c.Env = append(c.Env, "HOME=/app")
		_, out := run(t, c)
		if !strings.HasPrefix(out, want) {
			t.Errorf("user %q: got %q, want %q", user, out, want)
		}
	}
	for _, name := range []string{"of-1000", "of-1234"} {
		info, err := os.Stat(filepath.Join(s.Binds[0].Host, name))
		if err != nil || int(info.Sys().(*syscall.Stat_t).Uid) != os.Geteuid() {
			t.Errorf("%s belongs to %+v, %v", name, info, err)
		}
	}
}

func TestBwrapRootIsNotRootOfThisMachine(t *testing.T) {
	s := bwrapSpace(t)
	s.User = "root"
	got := say(t, s, `awk '/CapEff|CapPrm/ {print $2}' /proc/self/status; mount -t tmpfs none /etc 2>/dev/null || echo no mount; mknod /app/vda b 254 0 2>/dev/null || echo no device`)
	caps := strings.Fields(got)
	// SYS_ADMIN, SYS_PTRACE, DAC_READ_SEARCH, SYS_MODULE, MKNOD, SETFCAP
	const dangerous = 1<<21 | 1<<19 | 1<<2 | 1<<16 | 1<<27 | 1<<31
	for _, hex := range caps[:2] {
		if set, err := strconv.ParseUint(hex, 16, 64); err != nil || set&dangerous != 0 {
			t.Errorf("capabilities %s, %v", hex, err)
		}
	}
	if !strings.HasSuffix(got, "no mount\nno device") {
		t.Errorf("got %q", got)
	}
}

func TestBwrapInitReapsWhatIsLeftToIt(t *testing.T) {
	s := bwrapSpace(t)
	// A process that nobody reaps would stay in /proc for ever, and this script with it.
	if got := say(t, s, `sh -c '(:) & echo $! > pid'; n=$(cat pid); while grep -s . /proc/$n/status > status; do :; done; echo gone`); got != "gone" {
		t.Errorf("got %q", got)
	}
}

func TestBwrapEnvironmentIsThatOfTheCommand(t *testing.T) {
	t.Setenv("SANDBOX_TEST_SECRET", "of evalrun")
	check(syscall.Dup3(0, 123, 0)) // a file that evalrun's own starter has left open
	defer func() { check(syscall.Close(123)) }()
	s := bwrapSpace(t)
	c := inSpace(t, s, `tr '\0' '\n' < /proc/$$/environ; echo; tr '\0' '\n' < /proc/1/environ`)
	c.Env = []string{"A=first", "PATH=/usr/bin:/bin", "A=b c\nd", "LD_PRELOAD_NOT=", "B=\xff\xfe"}
	_, out := run(t, c)
	parts := strings.Split(out, "\n\n")
	if want := MarkerVar + "=" + c.Marker + "\nPATH=/usr/bin:/bin\nA=b c\nd\nLD_PRELOAD_NOT=\nB=\xff\xfe"; parts[0] != want {
		t.Errorf("environment: %q, want %q", parts[0], want)
	}
	if strings.Contains(out, "of evalrun") {
		t.Errorf("a variable of evalrun came in: %q", out)
	}
	if strings.Contains(parts[1], "A=") {
		t.Errorf("the init has the environment of the command: %q", parts[1])
	}
	c.Path, c.Args = "ls", []string{"ls", "/proc/self/fd"}
	if _, out := run(t, c); strings.Join(strings.Fields(out), " ") != "0 1 2 3" { // 3 is the folder that is listed
		t.Errorf("open files: %q", out)
	}
}

func TestBwrapProcessesAreFoundBySweep(t *testing.T) {
	s := bwrapSpace(t)
	s.User = "agent"
	l := newLife(t)
	s.Binds = append(s.Binds, Bind{Host: filepath.Dir(l.path), Inside: "/life", Writable: true})
	c := inSpace(t, s, "exec 5> /life/life; echo >&5; exec sleep 1000")
	p := must(Start(c))
	check(p.Ready(t.Context()))
	awaitLife(t, l)
	if n, err := Sweep(c.Marker); n < 1 || err != nil {
		t.Errorf("got %d, %v", n, err)
	}
	l.mustEnd(t)
	_, err := p.Wait(t.Context())
	check(err)
}

func TestBwrapLeavesNothing(t *testing.T) {
	for _, how := range []string{"by itself", "told to", "killed"} {
		t.Run(how, func(t *testing.T) {
			s := bwrapSpace(t)
			l := newLife(t)
			s.Binds = append(s.Binds, Bind{Host: filepath.Dir(l.path), Inside: "/life", Writable: true})
			// Given a process that has started one which ignores SIGTERM, in a session of its own
			// and without the marker.
			c := inSpace(t, s, roleScript("leave", "/life/life", "setsid", "unmarked")+"; echo $$; [ "+strings.ReplaceAll(how, " ", "")+" = byitself ] || sleep 1000")
			c.Interactive = true
			p := must(Start(c))
			pids := bufio.NewScanner(p.Stdout)
			pids.Scan()
			pids.Scan() // both are there
			switch how {
			case "told to":
				p.End(nil, 0)
			case "killed":
				check(syscall.Kill(p.PID(), syscall.SIGKILL))
			}
			_, err := p.Wait(t.Context())
			check(err)
			l.mustBeOver(t)
			if how != "killed" { // then whoever adopts orphans here has to reap them
				noChildOf(t, p.PID())
			}
		})
	}
}

// noChildOf fails if a process of a group is still there, be it a zombie.
func noChildOf(t *testing.T, pgid int) {
	t.Helper()
	stats, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, file := range stats {
		stat, _ := os.ReadFile(file) // it may be gone
		_, behind, _ := strings.Cut(string(stat), ") ")
		if f := strings.Fields(behind); len(f) > 2 && f[2] == strconv.Itoa(pgid) {
			t.Errorf("left behind: %s", stat)
		}
	}
}

func TestBwrapEndsWithEvalrun(t *testing.T) {
	bwrapSpace(t)
	l := newLife(t)
	// Given an evalrun that has started a process in bwrap.
	c := roleCommand(t, "evalrun", IsolationBwrap, l.path)
	c.Interactive = true
	p := must(Start(c))
	if line, err := bufio.NewReader(p.Stdout).ReadString('\n'); err != nil {
		t.Fatal(line, err)
	}
	awaitLife(t, l)
	// When it is killed, then so is the process.
	check(syscall.Kill(p.PID(), syscall.SIGKILL))
	l.mustEnd(t)
	_, err := p.Wait(t.Context())
	check(err)
}

func TestBwrapThatCannotMakeTheSpace(t *testing.T) {
	s := bwrapSpace(t)
	s.Binds = append(s.Binds, Bind{Host: t.TempDir(), Inside: "/proc/nothing/here"})
	c := inSpace(t, s, "echo never")
	p := must(Start(c))
	err := p.Ready(t.Context())
	if setup := asSetupError(err); setup == nil || setup.Stage != StageSpace || !strings.Contains(err.Error(), "bwrap: Can't") {
		t.Errorf("got %v", err)
	}
	exit, werr := p.Wait(t.Context())
	if werr != nil || !errors.Is(exit.Ended, err) {
		t.Errorf("got %+v, %v", exit, werr)
	}
	s.Binds[1].Inside = "/bin/task"
	if _, err := Start(c); err == nil || !strings.Contains(err.Error(), "/bin is a link") {
		t.Log(err) // where /bin is a folder of its own this is no error
	}
}

// What a space may use is bounded, together with what runs beside its process, and nothing is left
// of the bounds.
func TestLimitsOfASpace(t *testing.T) {
	for _, c := range []cgroup.Controller{cgroup.Memory, cgroup.PIDs} {
		if err := cgroup.Missing()[c]; err != nil {
			t.Skipf("%s cannot be limited here: %v", c, err)
		}
	}
	space := bwrapSpace(t)
	space.Limits = cgroup.Limits{Memory: 100 << 20, PIDs: 60}
	exit, out := run(t, inSpace(t, space, "i=0; while [ $i -lt 70 ]; do sleep 600 & i=$((i+1)); done; echo all"))
	if exit.State.Success() || strings.Contains(out, "all") {
		t.Errorf("70 processes: %q, %v", out, exit.State)
	}
	exit, out = run(t, inSpace(t, space, "head -c 300M /dev/zero | tail -c 290M | wc -c"))
	if exit.MemoryKills == 0 || strings.TrimSpace(out) == "304087040" {
		t.Errorf("300 MB: %q, %v, %v, %d processes were ended", out, exit.State, exit.Ended, exit.MemoryKills)
	}
}
