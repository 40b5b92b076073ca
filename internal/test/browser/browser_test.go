// Package browser tests the pages in a real browser: Debian's Chromium, over the DevTools protocol.
// It is a module of its own, so that the program does not depend on what drives the browser.
package browser

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/cdproto/target"
	"github.com/chromedp/chromedp"
)

// evalrun is the program, built once.
var evalrun string

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	dir, err := os.MkdirTemp("", "evalrun-browser-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	evalrun = filepath.Join(dir, "evalrun")
	build := exec.Command("go", "build", "-o", evalrun, "./cmd/evalrun")
	build.Dir = "../../.."
	build.Env = append(os.Environ(), "GOWORK=off")
	if out, err := build.CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "%v\n%s", err, out)
		return 1
	}
	defer func() {
		if chromium.end != nil {
			chromium.end()
		}
	}()
	return m.Run()
}

// world is a folder with an eval set and a store.
type world struct {
	testing.TB
	dir string
}

func newWorld(t testing.TB, files map[string]string) *world {
	t.Helper()
	w := &world{t, t.TempDir()}
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(w.dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return w
}

// evalrun runs the program to its end, and returns what it prints.
func (w *world) evalrun(code int, args ...string) string {
	w.Helper()
	cmd := exec.CommandContext(w.Context(), evalrun, args...)
	cmd.Dir = w.dir
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if cmd.ProcessState == nil || cmd.ProcessState.ExitCode() != code {
		w.Fatalf("evalrun %s: %v\n%s%s", strings.Join(args, " "), err, out, stderr.String())
	}
	return string(out)
}

// serve starts the service, and returns the link that its output has, and what kills it.
func (w *world) serve(args ...string) (links []string, kill func()) {
	w.Helper()
	cmd := exec.Command(evalrun, args...)
	cmd.Dir = w.dir
	out, err := cmd.StdoutPipe()
	if err != nil {
		w.Fatal(err)
	}
	cmd.Stderr = cmd.Stdout
	if err := cmd.Start(); err != nil {
		w.Fatal(err)
	}
	end := sync.OnceFunc(func() { _ = cmd.Wait() })
	kill = func() { _ = cmd.Process.Kill(); end() }
	w.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM) // it may have ended
		end()
	})
	lines := bufio.NewScanner(out)
	for lines.Scan() {
		if _, link, ok := strings.Cut(lines.Text(), "http://"); ok && strings.Contains(link, "/open?key=") {
			link, _, _ = strings.Cut(link, " ")
			go func() {
				for lines.Scan() { // so that it never waits for us
				}
			}()
			return []string{"http://" + link}, kill
		}
	}
	w.Fatal("serve has printed no link")
	return nil, nil
}

// browser is a browser of its own, in which everything that a page must not do is noted.
type browser struct {
	testing.TB
	ctx context.Context
	// own is its browser context in the Chromium of all tests; empty in a Chromium of its own.
	own cdp.BrowserContextID

	mu  sync.Mutex
	bad []string
}

func newBrowser(t testing.TB) *browser {
	t.Helper()
	if os.Getenv("FONTCONFIG_FILE") != "" { // it draws in another way than the others
		alloc, cancel := startChromium(t)
		t.Cleanup(cancel)
		return watched(t, alloc)
	}
	chromium.Do(func() {
		alloc, cancel := startChromium(t)
		chromium.ctx, _ = chromedp.NewContext(alloc)
		chromium.end = func() { _ = chromedp.Cancel(chromium.ctx); cancel() } // the tests are over
		if err := chromedp.Run(chromium.ctx); err != nil {
			t.Fatal(err)
		}
	})
	if chromium.ctx == nil {
		t.Fatal("chromium could not be started")
	}
	var own cdp.BrowserContextID
	inChromium(t, func(ctx context.Context) (err error) {
		own, err = target.CreateBrowserContext().Do(ctx)
		return err
	})
	t.Cleanup(func() {
		inChromium(t, func(ctx context.Context) error { return target.DisposeBrowserContext(own).Do(ctx) })
	})
	return newWindow(t, own)
}

// newWindow is a page in a window of its own, so that it is seen whatever other pages there are.
func newWindow(t testing.TB, own cdp.BrowserContextID) *browser {
	t.Helper()
	var tab target.ID
	inChromium(t, func(ctx context.Context) (err error) {
		tab, err = target.CreateTarget("about:blank").WithBrowserContextID(own).WithNewWindow(true).WithWidth(1400).WithHeight(1000).Do(ctx)
		return err
	})
	b := watched(t, chromium.ctx, chromedp.WithTargetID(tab))
	b.own = own
	return b
}

// inChromium does something with the Chromium of all tests.
func inChromium(t testing.TB, f func(context.Context) error) {
	t.Helper()
	if err := chromedp.Run(chromium.ctx, chromedp.ActionFunc(func(ctx context.Context) error {
		return f(cdp.WithExecutor(ctx, chromedp.FromContext(ctx).Browser))
	})); err != nil {
		t.Fatal(err)
	}
}

// chromium is the program, started once: each test has a browser context of its own in it, which shares
// no cookie and nothing else with those of others.
var chromium struct {
	sync.Once
	ctx context.Context
	end func()
}

func startChromium(t testing.TB) (context.Context, context.CancelFunc) {
	t.Helper()
	path, err := exec.LookPath("chromium")
	if err != nil {
		if os.Getenv("EVALRUN_CHROMIUM") == "required" {
			t.Fatal("there is no chromium (EVALRUN_CHROMIUM=required)")
		}
		t.Skip("there is no chromium (EVALRUN_CHROMIUM=required makes this a failure)")
	}
	o := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath(path), chromedp.NoSandbox, chromedp.WindowSize(1400, 1000), chromedp.WSURLReadTimeout(time.Minute))
	return chromedp.NewExecAllocator(context.Background(), o...)
}

// another is another page of the same browser.
func (b *browser) another() *browser {
	b.Helper()
	if b.own == "" {
		return watched(b.TB, b.ctx)
	}
	return newWindow(b.TB, b.own)
}

func watched(t testing.TB, parent context.Context, o ...chromedp.ContextOption) *browser {
	t.Helper()
	ctx, cancel := chromedp.NewContext(parent, o...)
	t.Cleanup(cancel)
	b := &browser{TB: t, ctx: ctx}
	chromedp.ListenTarget(ctx, func(event any) {
		switch e := event.(type) {
		case *runtime.EventExceptionThrown:
			b.note("exception: " + e.ExceptionDetails.Error())
		case *runtime.EventConsoleAPICalled:
			if e.Type == runtime.APITypeError {
				b.note(fmt.Sprintf("console: %s", e.Args[0].Value))
			}
		case *log.EventEntryAdded:
			if e.Entry.Level == log.LevelError {
				b.note("log: " + e.Entry.Text + " " + e.Entry.URL)
			}
		case *page.EventJavascriptDialogOpening:
			b.note("dialog: " + e.Message)
			go func() { _ = chromedp.Run(ctx, page.HandleJavaScriptDialog(true)) }() // the test fails in the end
		}
	})
	b.do(log.Enable())
	t.Cleanup(func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		for _, text := range b.bad {
			t.Error(text)
		}
	})
	return b
}

func (b *browser) note(text string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.bad = append(b.bad, text)
}

// do performs actions, each with a minute's time.
func (b *browser) do(actions ...chromedp.Action) {
	b.Helper()
	for _, a := range actions {
		done := make(chan error, 1)
		go func() { done <- chromedp.Run(b.ctx, a) }()
		select {
		case err := <-done:
			if err != nil {
				b.Fatal(err)
			}
		case <-time.After(time.Minute):
			b.Fatalf("not there after a minute: %T; the page says:\n%.3000s", a, b.text("main"))
		}
	}
}

// text is the visible text of an element.
func (b *browser) text(selector string) (out string) {
	b.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, 20*time.Second)
	defer cancel()
	if err := chromedp.Run(ctx, chromedp.Evaluate(fmt.Sprintf("document.querySelector(%q)?.innerText ?? ''", selector), &out)); err != nil {
		b.Fatal(err)
	}
	return out
}

// until waits until an expression of JavaScript is true, on this page or on one that comes after it.
func (b *browser) until(expression string) {
	b.Helper()
	poll := chromedp.Poll(expression, nil, chromedp.WithPollingInterval(50*time.Millisecond), chromedp.WithPollingTimeout(50*time.Second))
	b.do(chromedp.ActionFunc(func(ctx context.Context) error {
		for {
			switch err := poll.Do(ctx); {
			case err == nil:
				return nil
			case !navigated(err):
				return fmt.Errorf("until %s: %w", expression, err)
			}
		}
	}))
}

// navigated reports whether an expression was not evaluated to its end because another page came.
func navigated(err error) bool {
	for _, text := range []string{"Cannot find context with specified id", "Execution context was destroyed", "Inspected target navigated or closed", "Cannot find execution context"} {
		if strings.Contains(err.Error(), text) {
			return true
		}
	}
	return false
}

// screenshot keeps a picture of the page in the folder that EVALRUN_SCREENSHOTS names, if it does.
func (b *browser) screenshot(name string) {
	b.Helper()
	dir := os.Getenv("EVALRUN_SCREENSHOTS")
	if dir == "" {
		return
	}
	var picture []byte
	b.do(chromedp.Evaluate(`scrollTo(0, 0)`, nil), chromedp.FullScreenshot(&picture, 100))
	if err := os.WriteFile(filepath.Join(dir, name+".png"), picture, 0o600); err != nil {
		b.Fatal(err)
	}
}
