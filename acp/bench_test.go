package acp

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	sdk "github.com/coder/acp-go-sdk"
)

// updatesPerTurn is how many updates the agent of the benchmark sends before it waits for the next
// prompt. The SDK's client ends the connection when 1,024 of them wait to be handled, and can only
// be measured with less. Ours has no such limit.
const updatesPerTurn = 500

// BenchmarkConn measures our client and that of coder's SDK, both against the same agent, in a
// process of its own. The agent does as little as it can and writes once for all that it has read,
// so that it is the clients that are measured.
//
//   - sequential: one call after the other;
//   - concurrent: 32 callers;
//   - updates: an operation is 100,000 updates of 200 bytes, in turns of 500;
//   - burst: the same in one turn, which the SDK's client does not survive.
func BenchmarkConn(b *testing.B) {
	slog.SetDefault(slog.New(slog.NewTextHandler(io.Discard, nil))) // the SDK logs the end of a connection
	for _, peer := range []struct {
		name string
		dial func(*testing.B, *atomic.Int64) func(context.Context, string) error
	}{{"evalrun", dialOurs}, {"sdk", dialSDK}} {
		b.Run("sequential/"+peer.name, func(b *testing.B) {
			prompt := peer.dial(b, new(atomic.Int64))
			for b.Loop() {
				if err := prompt(b.Context(), "hello"); err != nil {
					b.Fatal(err)
				}
			}
		})
		b.Run("concurrent/"+peer.name, func(b *testing.B) {
			prompt := peer.dial(b, new(atomic.Int64))
			callers(b, 32, func() error { return prompt(b.Context(), "hello") })
		})
		updates := func(b *testing.B, turn int) {
			var seen atomic.Int64
			prompt := peer.dial(b, &seen)
			for b.Loop() {
				seen.Store(0)
				for range 100_000 / turn {
					if err := prompt(b.Context(), "updates "+strconv.Itoa(turn)); err != nil {
						b.Fatal(err)
					}
				}
				if seen.Load() != 100_000 {
					b.Fatalf("%d updates were handled", seen.Load())
				}
			}
			b.ReportMetric(100_000*float64(b.N)/b.Elapsed().Seconds(), "updates/s")
		}
		b.Run("updates/"+peer.name, func(b *testing.B) { updates(b, updatesPerTurn) })
		if peer.name == "evalrun" {
			b.Run("burst/evalrun", func(b *testing.B) { updates(b, 100_000) })
		}
	}
}

// callers shares b.N calls among n goroutines.
func callers(b *testing.B, n int, call func() error) {
	var left atomic.Int64
	left.Store(int64(b.N))
	errs := make(chan error, n)
	for range n {
		go func() {
			for left.Add(-1) >= 0 {
				if err := call(); err != nil {
					errs <- err
					return
				}
			}
			errs <- nil
		}()
	}
	for range n {
		if err := <-errs; err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "calls/s")
}

// startThin starts the agent of the benchmark.
func startThin(b *testing.B) (io.WriteCloser, io.Reader) {
	b.Helper()
	self, err := os.Executable()
	if err != nil {
		b.Fatal(err)
	}
	cmd := exec.Command(self)
	cmd.Env = append(os.Environ(), roleVariable+"=thin")
	stdin, err := cmd.StdinPipe()
	if err != nil {
		b.Fatal(err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		b.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		stdin.Close()
		if err := cmd.Wait(); err != nil {
			b.Error(err)
		}
	})
	return stdin, stdout
}

// counting is a handler that only counts, as cheap as it can be for both clients.
type counting struct {
	client
	seen *atomic.Int64
}

func (c *counting) Update(Update) { c.seen.Add(1) }

func dialOurs(b *testing.B, seen *atomic.Int64) func(context.Context, string) error {
	stdin, stdout := startThin(b)
	c := NewConn(stdin, stdout, &counting{seen: seen}, Options{})
	b.Cleanup(func() {
		c.Close()
		c.Wait()
	})
	return func(ctx context.Context, text string) error {
		_, err := c.Prompt(ctx, "s", Text(text))
		return err
	}
}

// sdkCounting is the same for the SDK.
type sdkCounting struct {
	sdk.Client // nothing else is called
	seen       *atomic.Int64
}

func (c *sdkCounting) SessionUpdate(context.Context, sdk.SessionNotification) error {
	c.seen.Add(1)
	return nil
}

func dialSDK(b *testing.B, seen *atomic.Int64) func(context.Context, string) error {
	stdin, stdout := startThin(b)
	c := sdk.NewClientSideConnection(&sdkCounting{seen: seen}, stdin, stdout)
	b.Cleanup(func() {
		stdin.Close()
		<-c.Done()
	})
	return func(ctx context.Context, text string) error {
		_, err := c.Prompt(ctx, sdk.PromptRequest{SessionId: "s", Prompt: []sdk.ContentBlock{sdk.TextBlock(text)}})
		return err
	}
}

// serveThin is the agent: it answers every request, after as many updates as a prompt "updates N"
// wants, and writes when there is nothing left to read.
func serveThin(r io.Reader, w io.Writer) {
	in, out := bufio.NewReaderSize(r, 64<<10), bufio.NewWriterSize(w, 64<<10)
	update := []byte(chunk(strings.Repeat("x", 200-len(chunk("")))) + "\n")
	for {
		line, err := in.ReadSlice('\n')
		if err != nil {
			return
		}
		_, id, _ := bytes.Cut(line, []byte(`"id":`))
		id = id[:bytes.IndexByte(id, ',')]
		if _, n, ok := bytes.Cut(line, []byte(`"updates `)); ok {
			count, _ := strconv.Atoi(string(n[:bytes.IndexByte(n, '"')]))
			for range count {
				_, _ = out.Write(update) // a client that is gone is seen when reading
			}
		}
		_, _ = fmt.Fprintf(out, `{"jsonrpc":"2.0","id":%s,"result":{"stopReason":"end_turn"}}`+"\n", id)
		if in.Buffered() == 0 {
			_ = out.Flush()
		}
	}
}
