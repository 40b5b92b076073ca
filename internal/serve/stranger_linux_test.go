package serve_test

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/evalrun/evalrun/internal/serve/jobs"
	"github.com/evalrun/evalrun/internal/testenv"
)

// strangerVar makes the test binary another user of the machine.
const strangerVar = "EVALRUN_TEST_STRANGER"

// stranger is what another user knows: where the server is, and what the files of its store are
// called.
type stranger struct {
	Base, RunID string
	Files       []string
	// Pages are the patterns of the pages.
	Pages []string
}

// TestAnotherUserGetsNothing has another user of the machine ask evalrun serve for everything that
// it serves, without a token, and open every file of its store.
func TestAnotherUserGetsNothing(t *testing.T) {
	testenv.NeedSlow(t)
	if text := os.Getenv(strangerVar); text != "" {
		var s stranger
		check(json.Unmarshal([]byte(text), &s))
		s.ask(t)
		s.open(t)
		return
	}
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("it must run as root, which can become another user")
	}
	dir, err := os.MkdirTemp("/var/tmp", "evalrun-test-") // where others reach the store's folder, and no further
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { check(os.RemoveAll(dir)) })
	check(os.Chmod(dir, 0o755))
	check(testenv.Build(dir, testenv.Evalrun))
	store := filepath.Join(dir, "store")
	base, pid := serveProcess(t, filepath.Join(dir, "evalrun"), store)
	w := &world{TB: t, base: base, token: strings.TrimSpace(evalrun(t, filepath.Join(dir, "evalrun"), "token", "new", "--quiet", "--scope", "admin", "--store", store))}
	s := stranger{Base: base, RunID: w.start("invoices").RunID, Pages: newWorld(t).server.ClosedPages()}
	w.reaches(s.RunID, "suspended")
	check(filepath.WalkDir(store, func(path string, _ fs.DirEntry, err error) error {
		s.Files = append(s.Files, path)
		return err
	}))
	if ports := listening(t, pid); len(ports) != 1 {
		t.Errorf("it listens on the ports %v", ports)
	}
	data, err := json.Marshal(s)
	check(err)

	self := filepath.Join(dir, "test")
	binary, err := os.ReadFile("/proc/self/exe")
	check(err)
	check(os.WriteFile(self, binary, 0o755))
	cmd := exec.Command(self, "-test.run=^"+t.Name()+"$", "-test.v")
	cmd.Dir, cmd.Env = "/", []string{strangerVar + "=" + string(data), "HOME=/nonexistent"}
	const nobody = 65534
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
	out, err := cmd.CombinedOutput()
	if errors.Is(err, syscall.EPERM) {
		t.Skipf("this root may not become another user: %v", err)
	}
	if err != nil || !strings.Contains(string(out), "was refused everything") {
		t.Errorf("%v\n%s", err, out)
	}
}

// ask asks for everything that is served.
func (s stranger) ask(t *testing.T) {
	parameter := regexp.MustCompile(`\{[a-zA-Z]+\}`)
	asked := 0
	for key := range theContract().operations {
		switch path := parameter.ReplaceAllString(key, s.RunID); {
		case strings.HasSuffix(path, "/healthz") || strings.HasSuffix(path, "/readyz"):
			s.wants(t, path, http.StatusOK, `{"status":"ok"}`)
		case strings.Contains(path, "/v1/hooks/"):
			s.wants(t, path, http.StatusNotFound, "there is no such webhook")
		default:
			s.wants(t, path, http.StatusUnauthorized, "expected the header Authorization: Bearer TOKEN")
		}
		asked++
	}
	patterns := []string{"GET /mcp", "POST /mcp", "DELETE /mcp"}
	for _, e := range jobs.Endpoints {
		patterns = append(patterns, e.Pattern)
	}
	for _, pattern := range patterns {
		if !strings.Contains(pattern, " ") {
			pattern = "GET " + pattern
		}
		s.wants(t, parameter.ReplaceAllString(pattern, s.RunID), http.StatusUnauthorized, "expected the header Authorization: Bearer TOKEN")
		asked++
	}
	for _, pattern := range s.Pages {
		s.wants(t, strings.TrimSuffix(parameter.ReplaceAllString(pattern, s.RunID), "{$}"), http.StatusUnauthorized, "Give a token to see the pages")
		asked++
	}
	t.Logf("of %d requests the stranger was refused everything", asked)
}

// wants holds an answer against what everybody may know.
func (s stranger) wants(t *testing.T, request string, status int, text string) {
	t.Helper()
	method, path, _ := strings.Cut(request, " ")
	r, err := http.NewRequest(method, s.Base+path, strings.NewReader(`{}`))
	check(err)
	r.Header.Set("Content-Type", "application/json")
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(resp.Body)
	check(err)
	most := 250 // what is said fits into that, and hardly anything else
	if strings.Contains(resp.Header.Get("Content-Type"), "text/html") {
		most = 6000 // the form for a token, with the frame of every page
	}
	if resp.StatusCode != status || method != http.MethodHead && !strings.Contains(string(body), text) || strings.Contains(string(body), s.RunID) || len(body) > most {
		t.Errorf("%s: %d %s", request, resp.StatusCode, body)
	}
}

// open opens the files of the store.
func (s stranger) open(t *testing.T) {
	if len(s.Files) < 5 {
		t.Errorf("the store has only %q", s.Files)
	}
	for _, path := range s.Files {
		f, err := os.Open(path)
		if err == nil {
			_ = f.Close()
		}
		if !errors.Is(err, fs.ErrPermission) {
			t.Errorf("%s: %v", path, err)
		}
	}
}

// serveProcess starts evalrun serve, which ends with the test.
func serveProcess(t *testing.T, program, store string) (base string, pid int) {
	t.Helper()
	cmd := exec.Command(program, "serve", "--store", store, "--config", filepath.Join(testenv.Top(t), "fixtures", "serve", "serve.yaml"), "--listen", "127.0.0.1:0")
	stderr, err := cmd.StderrPipe()
	check(err)
	check(cmd.Start())
	t.Cleanup(func() { _, _ = cmd.Process.Kill(), cmd.Wait() })
	serving := make(chan string, 1)
	go func() { // it ends with the process
		for lines := bufio.NewScanner(stderr); lines.Scan(); {
			if _, address, ok := strings.Cut(lines.Text(), "serving http://"); ok {
				serving <- address
			}
		}
	}()
	return "http://" + testenv.Receive(t, serving, "the address"), cmd.Process.Pid
}

func evalrun(t *testing.T, program string, args ...string) string {
	t.Helper()
	out, err := exec.Command(program, args...).Output()
	if err != nil {
		t.Fatal(err)
	}
	return string(out)
}

// listening are the addresses, as the kernel writes them, where a process listens for TCP.
func listening(t *testing.T, pid int) (found []string) {
	t.Helper()
	sockets := map[string]bool{}
	links, err := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", pid))
	check(err)
	for _, link := range links {
		if to, err := os.Readlink(link); err == nil {
			sockets[strings.TrimSuffix(strings.TrimPrefix(to, "socket:["), "]")] = true
		}
	}
	for _, table := range []string{"tcp", "tcp6"} {
		data, err := os.ReadFile(fmt.Sprintf("/proc/%d/net/%s", pid, table))
		if err != nil {
			continue // a machine without IPv6
		}
		for line := range strings.SplitSeq(string(data), "\n") {
			const listen = "0A"
			if f := strings.Fields(line); len(f) > 9 && f[3] == listen && sockets[f[9]] {
				found = append(found, f[1])
			}
		}
	}
	return found
}
