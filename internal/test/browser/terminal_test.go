package browser

import (
	"encoding/base64"
	"fmt"
	"html"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
)

// terminalPage shows text as a terminal does.
const terminalPage = `<!doctype html><meta charset="utf-8"><body style="margin:0;background:#f6f8fa"><pre style="margin:0;padding:16px;background:#0f1720;color:#d6deeb;` +
	`font:13px/1.5 'DejaVu Sans Mono',monospace;width:max-content">%s</pre>`

// What differs from run to run in what a terminal shows.
var (
	moment  = regexp.MustCompile(`\d{4}-\d\d-\d\d \d\d:\d\d:\d\d`)
	seconds = regexp.MustCompile(`\b\d+(\.\d+)?s\b`)
)

// The picture at the top of the README is what the programs print when an agent asks a person.
func TestTerminalPicture(t *testing.T) {
	fonts(t)
	sameChromium(t)
	w := newWorld(t, nil)
	if err := os.CopyFS(filepath.Join(w.dir, "approval"), os.DirFS("../../../fixtures/approval")); err != nil {
		t.Fatal(err)
	}
	var shown strings.Builder
	command := func(code int, line string) {
		cmd := exec.CommandContext(t.Context(), evalrun, strings.Fields(line)...)
		cmd.Dir = w.dir
		out, err := cmd.CombinedOutput()
		if cmd.ProcessState == nil || cmd.ProcessState.ExitCode() != code {
			t.Fatalf("evalrun %s: %v\n%s", line, err, out)
		}
		said := moment.ReplaceAllString(string(out), "2026-01-05 09:00:00")
		said = seconds.ReplaceAllString(said, "0.1s")
		fmt.Fprintf(&shown, `<b style="color:#7fdbca">$ evalrun %s</b>`+"\n%s\n", line, html.EscapeString(said))
	}
	command(75, "run --run-id refunds approval/evalset.json")
	command(0, "triggers refunds")
	command(0, "approve "+w.triggerOf("refunds", w.rolloutsOf("refunds", "pay")[0]))
	command(0, "resume refunds")
	terminal := fmt.Sprintf(terminalPage, strings.TrimSpace(shown.String()))
	b := newBrowser(t)
	b.do(chromedp.EmulateViewport(1000, 900), chromedp.Navigate("data:text/html;base64,"+base64.StdEncoding.EncodeToString([]byte(terminal))))
	width, height := ask[float64](b, `document.querySelector('pre').offsetWidth`), ask[float64](b, `document.querySelector('pre').offsetHeight`)
	compare(t, "terminal", b.shot(int64(width), int64(height)))
}
