package sandbox

import (
	"bufio"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
)

// plantedVar hands the files that root has planted to a test that runs again as an ordinary user.
const plantedVar = "SANDBOX_TEST_PLANTED"

// Nothing private of this machine can be read in a space, whoever evalrun runs as, and nothing
// that is put there while the space lives.
func TestBwrapShowsNothingPrivate(t *testing.T) {
	bwrapSpace(t)
	remembered.Clear()
	if planted := os.Getenv(plantedVar); planted != "" {
		lookForPrivate(t, strings.Split(planted, ":"))
		return
	}
	if os.Geteuid() != 0 {
		t.Log("root's part is left out: only root can plant files in the folders of the system")
		lookForPrivate(t, plant(t, os.Geteuid(), must(os.UserHomeDir())))
		return
	}
	folders := []string{"/etc", "/etc/ssl/certs", "/etc/profile.d", "/opt", "/srv", "/home", "/var/lib", "/usr/local/etc", "/usr/local/share"}
	t.Run("root", func(t *testing.T) {
		lookForPrivate(t, plant(t, 0, append(folders, "/root")...))
	})
	t.Run("an ordinary user", func(t *testing.T) {
		const nobody = 65534
		self := filepath.Join(must(os.MkdirTemp("/var/tmp", "evalrun-test-")), "test") // where nobody can reach it
		t.Cleanup(func() { check(os.RemoveAll(filepath.Dir(self))) })
		check(os.Chmod(filepath.Dir(self), 0o755))
		check(os.WriteFile(self, must(os.ReadFile(must(os.Executable()))), 0o755))
		cmd := exec.Command(self, "-test.run=^TestBwrapShowsNothingPrivate$", "-test.v")
		cmd.Dir = "/"
		cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=/nonexistent", "EVALRUN_BWRAP=" + os.Getenv("EVALRUN_BWRAP"),
			plantedVar + "=" + strings.Join(plant(t, nobody, folders...), ":")}
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		if strings.Contains(string(out), "--- SKIP") {
			t.Skipf("%s", out)
		}
	})
}

// plant puts a private file of a user, and a folder with one, into each of the folders that this
// machine has.
func plant(t *testing.T, owner int, folders ...string) (planted []string) {
	t.Helper()
	for _, folder := range folders {
		if _, err := os.Stat(folder); err != nil {
			continue
		}
		dir := must(os.MkdirTemp(folder, ".evalrun-test-"))
		t.Cleanup(func() { check(os.RemoveAll(dir)) })
		check(os.Chmod(dir, 0o755))
		for _, name := range []string{"private", "folder/private"} {
			file := filepath.Join(dir, name)
			check(os.MkdirAll(filepath.Dir(file), 0o700))
			check(os.WriteFile(file, []byte("PRIVATE "+file+"\n"), 0o600))
			check(os.Chown(filepath.Dir(file), owner, owner))
			check(os.Chown(file, owner, owner))
			planted = append(planted, file)
		}
	}
	return planted
}

func lookForPrivate(t *testing.T, planted []string) {
	s := bwrapSpace(t)
	// Some of the planted files are named by PATH, the way a package in /opt is.
	env := "PATH=/usr/bin:/bin"
	for _, file := range planted {
		if strings.HasPrefix(file, "/opt/") {
			env += ":" + filepath.Dir(file)
		}
	}
	const read = `cat $planted 2>/dev/null; find /etc /opt /srv /root /home /var /usr/local -type f ! -perm -o+r -exec cat {} + 2>/dev/null; echo looked`
	for _, user := range []string{"", "root", "agent"} {
		s.User = user
		if user == "agent" { // in a root of its own that may be written to
			s.Binds = append(s.Binds, Bind{Host: t.TempDir(), Inside: "/", Writable: true})
		}
		c := inSpace(t, s, "planted='"+strings.Join(planted, " ")+"'; "+read+"; read line; "+read)
		c.Env = []string{env}
		c.Interactive = true
		p := must(Start(c))
		out := bufio.NewReader(p.Stdout)
		before, err := out.ReadString('\n')
		if before != "looked\n" {
			t.Errorf("user %q: read %q, %v", user, before, err)
		}
		// When every file is replaced by another one, as passwd(1) replaces /etc/shadow, then those
		// cannot be read either.
		for _, file := range planted {
			check(os.WriteFile(file+".new", []byte("REPLACED "+file+"\n"), 0o600))
			check(os.Rename(file+".new", file))
		}
		must(fmt.Fprintln(p.Stdin, "go on"))
		after := must(io.ReadAll(out))
		if string(after) != "looked\n" {
			t.Errorf("user %q: when the files were replaced: read %q", user, after)
		}
		must(p.Wait(t.Context()))
	}
}

// T31: programs find their settings in /etc, whatever their names are.
func TestBwrapShowsWhatProgramsNeedOfEtc(t *testing.T) {
	s := bwrapSpace(t)
	for _, name := range []string{"alternatives", "ssl/certs", "ld.so.cache", "localtime", "hosts", "profile", "nsswitch.conf", "fonts/fonts.conf", "ssh/ssh_config"} {
		if _, err := os.Stat("/etc/" + name); err != nil {
			continue
		}
		if got := say(t, s, "ls -d /etc/"+name+"/. 2>/dev/null || cat /etc/"+name+" | wc -c"); got == "0" || strings.Contains(got, "No such") {
			t.Errorf("/etc/%s: %s", name, got)
		}
	}
	for command, want := range map[string]string{
		"chromium --headless --no-sandbox --disable-gpu --dump-dom 'data:text/html,<h1>seen</h1>' 2>/dev/null | grep -o '<h1>seen</h1>'": "<h1>seen</h1>",
		"git config --system --list >/dev/null; git --version | cut -d ' ' -f 1":                                                         "git",
		"java -version 2>&1 | grep -c Runtime":                  "1",
		"fc-match -f found sans":                                "found",
		"ssh -G localhost 2>&1 | grep -c '^hostname localhost'": "1",
		"python3 -c 'import sys, ssl; print(3)'":                "3",
		"node -p 1+1":                                           "2",
	} {
		program, _, _ := strings.Cut(command, " ")
		if _, err := exec.LookPath(program); err != nil {
			t.Logf("%s is not tried: it is not installed", program)
			continue
		}
		c := inSpace(t, s, command+"; true")
		c.Env = []string{"PATH=/usr/local/bin:/usr/bin:/bin", "HOME=/tmp"}
		if _, got := run(t, c); got != want+"\n" && got != want {
			t.Errorf("%s: %q, want %q", command, got, want)
		}
	}
}

func TestSettingsOfAnEtc(t *testing.T) {
	top := must(filepath.EvalSymlinks(t.TempDir()))
	for _, dir := range []string{top, filepath.Dir(top)} { // which every user may enter, as /
		check(os.Chmod(dir, 0o755))
	}
	etc := filepath.Join(top, "etc")
	for _, name := range []string{"hosts", "shadow", "fonts/fonts.conf", "ssl/certs/ca.pem", "ssl/private/key.pem", "java-17/security", "../run/stub.conf", "../home/.ssh/key",
		"chromium.d/flags", "machine-id", "default/service", "ssh/ssh_config", "ssh/ssh_host_rsa_key", "pki/tls/private/key", "private.d/x"} {
		write(t, filepath.Join(etc, name), name)
	}
	write(t, filepath.Join(etc, "npmrc"), "//registry/:_authToken=x")
	check(os.Chmod(filepath.Join(etc, "npmrc"), 0o600))
	check(os.Chmod(filepath.Join(etc, "private.d"), 0o700))
	check(os.Chmod(filepath.Join(top, "home"), 0o700))
	check(os.Symlink("../run/stub.conf", filepath.Join(etc, "resolv.conf")))
	check(os.Symlink("../home/.ssh/key", filepath.Join(etc, "key")))
	check(os.Symlink("machine-id", filepath.Join(etc, "hostid")))
	check(os.Symlink("/usr/bin/env", filepath.Join(etc, "localtime")))
	check(os.Symlink("nowhere", filepath.Join(etc, "services")))
	l := layout{}
	l.addSettings(etc)
	want := layout{
		"/etc": {kind: folder}, "/etc/hosts": {bind, etc + "/hosts"}, "/etc/fonts": {bind, etc + "/fonts"}, "/etc/java-17": {bind, etc + "/java-17"},
		"/etc/ssl": {bind, etc + "/ssl"}, "/etc/ssl/private": {kind: absent}, "/etc/ssh": {bind, etc + "/ssh"}, "/etc/ssh/ssh_host_rsa_key": {kind: absent},
		"/etc/pki": {bind, etc + "/pki"}, "/etc/pki/tls/private": {kind: absent}, "/etc/chromium.d": {bind, etc + "/chromium.d"},
		"/etc/resolv.conf": {bind, top + "/run/stub.conf"}, "/etc/localtime": {link, "/usr/bin/env"},
	}
	if !maps.Equal(l, want) {
		t.Errorf("got %v, want %v", l, want)
	}
}

func TestPackagesOfOpt(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can put a package into /opt")
	}
	dir := must(os.MkdirTemp("/opt", "evalrun-test-"))
	t.Cleanup(func() { check(os.RemoveAll(dir)) })
	write(t, filepath.Join(dir, "bin", "tool"), "#!/bin/sh\n. ${0%/bin/*}/share/word\n")
	write(t, filepath.Join(dir, "share", "word"), "echo found")
	check(os.Chmod(dir, 0o755))
	check(os.Chmod(filepath.Join(dir, "bin", "tool"), 0o755))
	s := bwrapSpace(t)
	c := inSpace(t, s, "tool; ls /opt")
	c.Env = []string{"PATH=/usr/bin:/bin:/opt/bin:" + filepath.Join(dir, "bin")}
	if _, out := run(t, c); out != "found\n"+filepath.Base(dir)+"\n" {
		t.Errorf("got %q", out)
	}
	c.Env = []string{"PATH=/usr/bin:/bin:/opt"}
	if _, out := run(t, c); strings.Contains(out, filepath.Base(dir)) || slices.Contains(strings.Fields(say(t, s, "ls /")), "opt") {
		t.Errorf("/opt is seen: %q", out)
	}
}
