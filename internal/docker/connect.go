package docker

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// dial connects with a daemon.
type dial func(context.Context) (net.Conn, error)

func plain(network, address string) dial {
	return func(ctx context.Context) (net.Conn, error) { return new(net.Dialer).DialContext(ctx, network, address) }
}

// secured connects over TLS, with the certificate of this client.
func (e Endpoint) secured(address string) (dial, error) {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return nil, err
	}
	config := &tls.Config{ServerName: host, MinVersion: tls.VersionTLS12, InsecureSkipVerify: e.SkipVerify} //nolint:gosec // its user has said so
	at := func(name string) string { return filepath.Join(e.Certificates, name) }
	known, err := os.ReadFile(at("ca.pem"))
	switch {
	case err == nil:
		if config.RootCAs = x509.NewCertPool(); !config.RootCAs.AppendCertsFromPEM(known) {
			return nil, fmt.Errorf("%s has no certificate", at("ca.pem"))
		}
	case !errors.Is(err, os.ErrNotExist):
		return nil, err
	}
	own, err := tls.LoadX509KeyPair(at("cert.pem"), at("key.pem"))
	if err == nil {
		config.Certificates = []tls.Certificate{own}
	} else if !errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("the certificate for the Docker daemon (cert.pem and key.pem in %s): %w", e.Certificates, err)
	}
	return func(ctx context.Context) (net.Conn, error) {
		return (&tls.Dialer{Config: config}).DialContext(ctx, "tcp", address)
	}, nil
}

// overSSH connects by the command that Docker has for this at the other end. Keys, hosts and users are
// those of the ssh command, which asks nothing.
func overSSH(u *url.URL) dial {
	args := []string{"-o", "BatchMode=yes", "-o", "ConnectTimeout=30", "-T"}
	if user := u.User.Username(); user != "" {
		args = append(args, "-l", user)
	}
	if port := u.Port(); port != "" {
		args = append(args, "-p", port)
	}
	args = append(args, "--", u.Hostname(), "docker", "system", "dial-stdio")
	return func(context.Context) (net.Conn, error) { // the connection outlives the context
		return newProgramConn(exec.Command("ssh", args...))
	}
}

// programConn is a connection over stdin and stdout of a program, which ends with it.
type programConn struct {
	in   io.WriteCloser
	out  io.ReadCloser
	cmd  *exec.Cmd
	once sync.Once

	answered atomic.Bool
	mu       sync.Mutex
	said     []byte // the first that the program has complained of
}

// newProgramConn starts the program. It has a group of its own, since a signal of the terminal is not for it:
// what has to be cleaned up goes over this connection.
func newProgramConn(cmd *exec.Cmd) (net.Conn, error) {
	c := &programConn{cmd: cmd}
	var err error
	if c.in, err = cmd.StdinPipe(); err == nil {
		c.out, err = cmd.StdoutPipe()
	}
	cmd.Stderr = (*complaints)(c)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.WaitDelay = time.Second
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		return nil, err
	}
	return c, nil
}

// complaints takes what the program of a connection complains of.
type complaints programConn

func (s *complaints) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.said = append(s.said, p[:min(len(p), 2000-len(s.said))]...)
	return len(p), nil
}

func (c *programConn) Read(p []byte) (int, error) {
	n, err := c.out.Read(p)
	if n > 0 {
		c.answered.Store(true)
	}
	if err == nil || c.answered.Load() {
		return n, err
	}
	c.end(time.Second) // then all complaints are there
	c.mu.Lock()
	defer c.mu.Unlock()
	if said := strings.TrimSpace(string(c.said)); said != "" {
		return n, fmt.Errorf("%s: %s", filepath.Base(c.cmd.Path), said)
	}
	return n, err
}

func (c *programConn) Write(p []byte) (int, error) { return c.in.Write(p) }

// CloseWrite tells the other side that nothing more comes.
func (c *programConn) CloseWrite() error { return c.in.Close() }

// Close ends the program.
func (c *programConn) Close() error {
	c.end(0)
	return nil
}

// end gives the program some time to end by itself.
func (c *programConn) end(grace time.Duration) {
	c.once.Do(func() {
		_ = c.in.Close()
		late := time.AfterFunc(grace, func() { _ = c.cmd.Process.Kill() })
		defer late.Stop()
		_ = c.cmd.Wait() // its status says less than its complaints
	})
}

func (c *programConn) LocalAddr() net.Addr              { return &net.UnixAddr{Name: c.cmd.Path} }
func (c *programConn) RemoteAddr() net.Addr             { return c.LocalAddr() }
func (c *programConn) SetDeadline(time.Time) error      { return os.ErrNoDeadline }
func (c *programConn) SetReadDeadline(time.Time) error  { return os.ErrNoDeadline }
func (c *programConn) SetWriteDeadline(time.Time) error { return os.ErrNoDeadline }
