package images

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"net/http/httputil"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/evalrun/evalrun/internal/fault"
	"github.com/evalrun/evalrun/internal/testenv"
)

// certified makes a folder with ca.pem, cert.pem and key.pem, of which the certificate is for 127.0.0.1 and for
// clients.
func certified(t *testing.T) (dir string, own tls.Certificate, known *x509.CertPool) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	is := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test"}, NotBefore: time.Now().Add(-48 * time.Hour),
		NotAfter: time.Now().Add(48 * time.Hour), IsCA: true, BasicConstraintsValid: true, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		KeyUsage:    x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}}
	raw, err := x509.CreateCertificate(rand.Reader, is, is, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	secret, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	dir = t.TempDir()
	cert := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: raw})
	for name, text := range map[string][]byte{"ca.pem": cert, "cert.pem": cert,
		"key.pem": pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: secret})} {
		if err := os.WriteFile(filepath.Join(dir, name), text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if own, err = tls.LoadX509KeyPair(filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")); err != nil {
		t.Fatal(err)
	}
	known = x509.NewCertPool()
	known.AppendCertsFromPEM(cert)
	return dir, own, known
}

// passOn passes the connections of a listener on to the daemon until the end of the test.
func passOn(t testing.TB, l net.Listener) {
	t.Helper()
	socket := strings.TrimPrefix(theDaemon(t).Host, "unix://")
	var passing sync.WaitGroup
	t.Cleanup(func() { _ = l.Close(); passing.Wait() })
	passing.Go(func() {
		for {
			in, err := l.Accept()
			if err != nil {
				return
			}
			passing.Go(func() { pass(in.(halfCloser), socket) }) //nolint:forcetypeassert // of TCP or TLS
		}
	})
}

// A daemon behind TLS that lets in nobody without a certificate, named by a context of the docker command.
// The agent's process, its gateway and its files go over such connections.
func TestDaemonOfAContext(t *testing.T) {
	t.Parallel()
	k := agentTask(t, "", "", `[[RUN echo x >/opt/x]] [[SAY done]]`, `[ -e /opt/x ]`)
	dir, own, known := certified(t)
	l, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{Certificates: []tls.Certificate{own}, ClientCAs: known,
		ClientAuth: tls.RequireAndVerifyClientCert, MinVersion: tls.VersionTLS12})
	if err != nil {
		t.Fatal(err)
	}
	passOn(t, l)
	config, id := t.TempDir(), fmt.Sprintf("%x", sha256.Sum256([]byte("far")))
	meta, certificates := filepath.Join(config, "contexts/meta", id), filepath.Join(config, "contexts/tls", id)
	if err := errors.Join(os.MkdirAll(meta, 0o700), os.MkdirAll(certificates, 0o700), os.Rename(dir, filepath.Join(certificates, "docker")),
		os.WriteFile(filepath.Join(meta, "meta.json"), []byte(`{"Name":"far","Endpoints":{"docker":{"Host":"tcp://`+l.Addr().String()+`"}}}`), 0o600)); err != nil {
		t.Fatal(err)
	}
	k.env = []string{"DOCKER_HOST=", "DOCKER_CONTEXT=far", "DOCKER_CONFIG=" + config}
	k.solves()
}

// anHourOff is passOn for a daemon whose clock is an hour ahead, as far as its answers say.
func anHourOff(t testing.TB, l net.Listener) {
	t.Helper()
	socket := strings.TrimPrefix(theDaemon(t).Host, "unix://")
	later := func(at []byte) []byte {
		made, err := time.Parse(time.RFC3339Nano, string(at))
		if err != nil || made.IsZero() {
			return at
		}
		return made.Add(time.Hour).AppendFormat(nil, time.RFC3339Nano)
	}
	server := &http.Server{ReadHeaderTimeout: time.Minute, Handler: &httputil.ReverseProxy{
		Rewrite:       func(r *httputil.ProxyRequest) { r.Out.URL.Scheme, r.Out.URL.Host = "http", "docker" },
		FlushInterval: -1,
		Transport: &http.Transport{DisableCompression: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", socket)
		}},
		ModifyResponse: func(a *http.Response) error {
			a.Header.Set("Date", time.Now().Add(time.Hour).UTC().Format(http.TimeFormat))
			if a.ContentLength <= 0 || a.Header.Get("Content-Type") != "application/json" {
				return nil
			}
			said, err := io.ReadAll(a.Body)
			said = instant.ReplaceAllFunc(said, later)
			a.ContentLength, a.Body = int64(len(said)), io.NopCloser(bytes.NewReader(said))
			a.Header.Set("Content-Length", strconv.Itoa(len(said)))
			return err
		}}}
	ended := make(chan struct{})
	go func() { defer close(ended); _ = server.Serve(l) }()
	t.Cleanup(func() { _ = server.Close(); <-ended })
}

// instant finds the times in answers of the daemon.
var instant = regexp.MustCompile(`\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z`)

// breakable is a listener whose connections can be ended.
type breakable struct {
	net.Listener
	mu  sync.Mutex
	all []net.Conn
}

func (b *breakable) Accept() (net.Conn, error) {
	c, err := b.Listener.Accept()
	if err == nil {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.all = append(b.all, c)
	}
	return c, err
}

// end ends the connections, and accepts no more.
func (b *breakable) end() {
	_ = b.Close()
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, c := range b.all {
		_ = c.Close()
	}
}

// A daemon that goes while an agent works is a fault of the environment, not of the agent. What it has left is
// removed by the next evalrun that uses the daemon.
func TestDaemonThatGoesWhileAnAgentWorks(t *testing.T) {
	t.Parallel()
	k := agentTask(t, "", "", "[[RUN : >/opt/x; sleep 600]] [[SAY done]]", "")
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	way := &breakable{Listener: l}
	passOn(t, way)
	k.env = []string{"DOCKER_HOST=tcp://" + l.Addr().String()}
	k.loses("agent.json", "", func(string) { way.end() })
	k.env = []string{"DOCKER_HOST=" + theDaemon(t).Host}
	k.write("instruction.md", "[[SAY done]]\n")
	k.solves()
}

// loses runs an agent that makes the file /opt/x. When it is there its container is lost, which is no fault
// of the agent.
func (k *task) loses(agent, says string, lose func(id string)) {
	k.t.Helper()
	cmd := k.command("run", "-o", "results.json", "--isolation", k.isolation, "--agent", agent, "task")
	if err := cmd.Start(); err != nil {
		k.t.Fatal(err)
	}
	works := k.inContainer("until [ -e /opt/x ]; do sleep 0.1; done")
	lose(works)
	_ = cmd.Wait()
	if r := k.results(); works == "" || r.Error == nil || r.Error.Category != string(fault.Interrupted) || r.Score != nil || !strings.Contains(r.Error.Message, says) {
		k.t.Errorf("it worked in %q: %+v, %+v\n%s", works, r.Error, r, k.log())
	}
}

// inContainer waits for a container of the task in which a command succeeds. It is empty if there is none.
func (k *task) inContainer(command string) (id string) {
	k.t.Helper()
	d := client(k.t)
	testenv.Eventually(func() bool {
		for _, one := range k.containers() {
			if runs(k.t, d, one, "/bin/sh", "-c", command) {
				id = one
			}
		}
		return id != ""
	})
	return id
}

// A container that somebody else kills while the agent works is a fault of the environment, and says so. A process
// of the agent that is killed, also by itself, is the agent's.
func TestContainerThatSomebodyKills(t *testing.T) {
	t.Parallel()
	for agent, instruction := range map[string]string{"oracle": "Do it.", "agent.json": "[[RUN : >/opt/x; sleep 600]] [[SAY done]]"} {
		t.Run(agent, func(t *testing.T) {
			t.Parallel()
			k := agentTask(t, "", "", instruction, "")
			k.write("solution/solve.sh", ": >/opt/x; sleep 600\n")
			k.loses(agent, "somebody else has ended it", func(id string) {
				if err := client(t).Kill(t.Context(), id); err != nil {
					t.Error(err)
				}
			})
			if left := k.containers(); len(left) > 0 {
				t.Errorf("containers are left: %v", left)
			}
		})
	}
	t.Run("itself", func(t *testing.T) {
		t.Parallel()
		k := newTask(t, asDocker, plain, "", "kill -9 1; kill -9 $$", "")
		k.evalrun(3, "run", "-o", "results.json", "--isolation", k.isolation, "--agent", "oracle", "task")
		if r := k.results(); r.Error == nil || r.Error.Category != string(fault.Exit) {
			t.Errorf("%+v\n%s", r.Error, k.log())
		}
	})
}

// A daemon that is reached over ssh, with the keys and the settings of the ssh command.
func TestDaemonOverSSH(t *testing.T) {
	t.Parallel()
	k := agentTask(t, "", "", `[[RUN echo x >/opt/x]] [[SAY done]]`, `[ -e /opt/x ]`)
	for _, program := range []string{"ssh", "/usr/sbin/sshd", "ssh-keygen", "docker"} {
		if _, err := exec.LookPath(program); err != nil {
			testenv.Need(t, testenv.Docker, err)
		}
	}
	dir, ssh := t.TempDir(), lookPath(t, "ssh")
	for _, name := range []string{"host", "user"} {
		if out, err := exec.Command("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", filepath.Join(dir, name)).CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}
	free, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	port := fmt.Sprint(free.Addr().(*net.TCPAddr).Port)
	_ = free.Close()
	for name, text := range map[string]string{
		"sshd_config": "ListenAddress 127.0.0.1:" + port + "\nHostKey " + dir + "/host\nAuthorizedKeysFile " + dir + "/user.pub\nStrictModes no\nUsePAM no\nPidFile none\n" +
			"PermitRootLogin yes\nSetEnv DOCKER_HOST=" + theDaemon(t).Host + "\n",
		"config": "IdentityFile " + dir + "/user\nIdentitiesOnly yes\nUserKnownHostsFile /dev/null\nStrictHostKeyChecking no\nLogLevel ERROR\n",
		"ssh":    "#!/bin/sh\nexec " + ssh + " -F " + dir + "/config \"$@\"\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.MkdirAll("/run/sshd", 0o755); err != nil { // sshd wants it
		t.Fatal(err)
	}
	server := exec.Command("/usr/sbin/sshd", "-D", "-e", "-f", filepath.Join(dir, "sshd_config"))
	server.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	log, err := os.Create(filepath.Join(dir, "log"))
	if err != nil {
		t.Fatal(err)
	}
	server.Stderr = log
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = server.Process.Kill()
		_ = server.Wait()
		_ = log.Close()
		if t.Failed() {
			t.Log(testenv.ReadFile(t, log.Name()))
		}
	})
	if !testenv.Eventually(func() bool {
		c, err := net.Dial("tcp", "127.0.0.1:"+port)
		if err == nil {
			_ = c.Close()
		}
		return err == nil
	}) {
		t.Fatal("sshd does not listen")
	}
	k.env = []string{"DOCKER_HOST=ssh://root@127.0.0.1:" + port, "PATH=" + dir + ":" + programs + ":" + os.Getenv("PATH")}
	k.solves()
	k.env = []string{"DOCKER_HOST=ssh://nobody@127.0.0.1:" + port, "PATH=" + dir + ":" + programs + ":" + os.Getenv("PATH")}
	if out := k.evalrun(2, "run", "--isolation", "docker", "--agent", "oracle", "task"); !strings.Contains(out, "does not answer: ssh: ") {
		t.Errorf("somebody whom the other side does not know: %s", out)
	}
}

func lookPath(t *testing.T, program string) string {
	t.Helper()
	at, err := exec.LookPath(program)
	if err != nil {
		t.Fatal(err)
	}
	return at
}

// asMember has evalrun run by somebody without any rights but the group of the daemon's socket, to which pass passes on.
func (k *task) asMember(pass func(testing.TB, net.Listener)) {
	k.t.Helper()
	own := filepath.Join(k.t.TempDir(), "s") // the daemon's own socket stays as it is
	l, err := net.Listen("unix", own)
	if err != nil {
		k.t.Fatal(err)
	}
	const group = 4242
	home := filepath.Join(k.dir, "home")
	if err := errors.Join(os.Chown(own, 0, group), os.Chmod(own, 0o660), os.Chmod(filepath.Dir(own), 0o755), os.Chmod(filepath.Dir(filepath.Dir(own)), 0o755),
		os.Chmod(programs, 0o755), os.Mkdir(home, 0o700)); err != nil {
		k.t.Fatal(err)
	}
	pass(k.t, l)
	k.env = []string{"DOCKER_HOST=unix://" + own, "HOME=" + home, "EVALRUN_IMAGES=" + home + "/images", "XDG_RUNTIME_DIR=" + home}
	k.as = &syscall.Credential{Uid: nobody, Gid: nobody, Groups: []uint32{group}}
}

// Somebody without any rights but the group of the daemon's socket runs agents in its containers, which are suspended
// and gone on with; without the group, the error says what to become.
func TestMemberOfTheDockerGroup(t *testing.T) {
	t.Parallel()
	k := agentTask(t, "", "", `[[RUN echo x >>/opt/x]] [[ASK execute go {"n":1}]] [[SAY done]]`, `[ "$(cat /opt/x)" = x ]`)
	k.asMember(passOn)
	k.evalrun(75, "run", "--run-id", "r", "-o", "results.json", "--isolation", k.isolation, "--agent", "agent.json", "task")
	k.evalrun(0, "approve", k.trigger("r"))
	k.evalrun(0, "resume", "-o", "results.json", "r")
	if r := k.results(); r.Score == nil || *r.Score != 1 || len(k.containers()) > 0 {
		t.Errorf("%+v; containers: %v\n%s", r, k.containers(), k.log())
	}
	k.as.Groups = nil
	if out := k.evalrun(2, "run", "--isolation", "docker", "--agent", "oracle", "task"); !strings.Contains(out, "its socket is for root and the members of a group, often docker") {
		t.Errorf("without the group: %s", out)
	}
}

// The compatible socket of podman: an agent that has no network is run, and what it has changed is seen by the
// tests.
func TestSocketOfPodman(t *testing.T) {
	t.Parallel()
	testenv.NeedPodman(t)
	k := agentTask(t, "[agent]\nnetwork_mode = \"no-network\"\n[verifier]\nnetwork_mode = \"no-network\"\n", "", `[[RUN echo x >/opt/x; rm /bin/whoami]] [[SAY done]]`, `[ -e /opt/x ]; [ ! -e /bin/whoami ]`)
	socket := filepath.Join(t.TempDir(), "s")
	service := exec.Command("podman", "system", "service", "--time", "0", "unix://"+socket)
	service.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := service.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = service.Process.Kill(); _ = service.Wait() })
	if !testenv.Eventually(func() bool {
		c, err := net.Dial("unix", socket)
		if err == nil {
			_ = c.Close()
		}
		return err == nil
	}) {
		t.Fatal("podman's service does not listen")
	}
	k.env = []string{"DOCKER_HOST=unix://" + socket}
	k.solves()
	if left, err := exec.Command("podman", "ps", "--all", "--quiet", "--filter", "label=test="+t.Name()).Output(); err != nil || len(left) > 0 {
		t.Errorf("containers are left: %s, %v", left, err)
	}
	// What stays is removed as the docs say.
	if out, err := exec.Command("podman", "volume", "prune", "--force", "--filter", "label=dev.evalrun.programs").CombinedOutput(); err != nil || len(out) == 0 {
		t.Errorf("the volumes of programs: %v, %s", err, out)
	}
}
