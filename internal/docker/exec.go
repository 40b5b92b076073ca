package docker

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
)

// Exec is a program to be run in a container. The field names are those of the API.
type Exec struct {
	Cmd        []string
	Env        []string
	User       string
	WorkingDir string
}

// Streams are the files of a program.
type Streams struct {
	// In is nil for none.
	In       io.Reader
	Out, Err io.Writer
}

// Run runs a program in a container, waits for its end and returns its exit status. When ctx is done
// Run returns, and the program runs on until the container ends: the API ends none.
func (c *Client) Run(ctx context.Context, id string, e Exec, s Streams) (status int, err error) {
	var made struct{ ID string }
	if err := c.call(ctx, http.MethodPost, container(id)+"/exec", nil, struct {
		Exec
		AttachStdin, AttachStdout, AttachStderr bool
	}{e, s.In != nil, true, true}, &made); err != nil {
		return 0, err
	}
	at := "/exec/" + url.PathEscape(made.ID)
	conn, out, err := c.hijack(ctx, at+"/start")
	if err != nil {
		return 0, err
	}
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	defer func() { stop(); _ = conn.Close() }()
	if s.In != nil {
		go func() { // it ends with the connection, or when In does
			_, _ = io.Copy(conn, s.In)
			if half, ok := conn.(interface{ CloseWrite() error }); ok {
				_ = half.CloseWrite()
			}
		}()
	}
	first := &beginning{w: s.Out}
	err = demultiplex(out, first, s.Err)
	if ctx.Err() != nil {
		return 0, context.Cause(ctx)
	}
	if err != nil {
		err = fmt.Errorf("the output of the program broke off: %w", err)
		if !first.refused {
			return 0, err
		}
	}
	var is struct {
		Running  bool
		ExitCode *int
		Pid      int
	}
	if failed := c.call(ctx, http.MethodGet, at+"/json", nil, nil, &is); failed != nil {
		return 0, cmp.Or(err, failed)
	}
	switch ended := !is.Running && is.ExitCode != nil; {
	case ended && is.Pid == 0 && !c.podman:
		// It was never started, and what was printed says why, also if Out does not take that. podman
		// forgets the id of what has ended.
		return 0, fmt.Errorf("cannot start %s: %s", e.Cmd[0], bytes.TrimSpace(first.text))
	case err != nil:
		return 0, err
	case !ended:
		return 0, errors.New("the Docker daemon has ended the connection to a program that still runs")
	}
	return *is.ExitCode, nil
}

// beginning remembers the first of what is written, and whether w has refused something.
type beginning struct {
	w       io.Writer
	text    []byte
	refused bool
}

func (b *beginning) Write(p []byte) (int, error) {
	b.text = append(b.text, p[:min(len(p), 1000-len(b.text))]...)
	n, err := b.w.Write(p)
	b.refused = b.refused || err != nil
	return n, err
}

// hijack makes a request whose connection becomes that of a program.
func (c *Client) hijack(ctx context.Context, path string) (net.Conn, io.Reader, error) {
	conn, err := c.dial(ctx)
	if err != nil {
		return nil, nil, err
	}
	body, _ := json.Marshal(map[string]bool{"Detach": false, "Tty": false}) // it cannot fail
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://docker"+c.version+path, bytes.NewReader(body))
	if err == nil {
		r.Header.Set("Content-Type", "application/json")
		r.Header.Set("Connection", "Upgrade")
		r.Header.Set("Upgrade", "tcp")
		err = r.Write(conn)
	}
	in := bufio.NewReader(conn)
	var answer *http.Response
	if err == nil {
		answer, err = http.ReadResponse(in, r) //nolint:bodyclose // its body is the connection
	}
	if err == nil && answer.StatusCode != http.StatusSwitchingProtocols && answer.StatusCode != http.StatusOK {
		err = refusal(answer)
	}
	if err != nil {
		return nil, nil, errors.Join(err, conn.Close())
	}
	return conn, in, nil
}

// demultiplex separates the two outputs of a program, which the daemon sends in frames: a kind, three
// zeros, the length in four bytes, and the data.
func demultiplex(in io.Reader, out, errs io.Writer) error {
	var head [8]byte
	for {
		if _, err := io.ReadFull(in, head[:]); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
		w := out
		switch head[0] {
		case 0, 1:
		case 2:
			w = errs
		default:
			return fmt.Errorf("the Docker daemon has sent a frame of kind %d", head[0])
		}
		n := int64(binary.BigEndian.Uint32(head[4:]))
		if _, err := io.CopyN(w, in, n); err != nil {
			return err
		}
	}
}
