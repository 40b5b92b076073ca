package modelagent

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/evalrun/evalrun/internal/agent"
	"github.com/evalrun/evalrun/internal/fault"
	"github.com/evalrun/evalrun/internal/model"
	"github.com/evalrun/evalrun/internal/record"
)

const (
	pngHead = "\x89PNG\r\n\x1a\n"
	gifHead = "GIF89a"
)

// written makes files in a folder.
func written(t *testing.T, dir string, files map[string]string) {
	t.Helper()
	for name, content := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// What cannot be sent is found before the run, and again by a rollout whose file has changed meanwhile.
func TestFilesThatCannotBeSent(t *testing.T) {
	outside := t.TempDir()
	dir := filepath.Join(outside, "set")
	if err := os.MkdirAll(filepath.Join(dir, "folder"), 0o700); err != nil {
		t.Fatal(err)
	}
	written(t, outside, map[string]string{"outside.png": pngHead})
	written(t, dir, map[string]string{"photo.png": pngHead, "moving.gif": gifHead, "notes.pdf": "only text",
		"large.png": pngHead + strings.Repeat("x", 4_000_000), "large.pdf": "%PDF-1.7" + strings.Repeat("x", 26_000_000)})
	if err := os.Symlink("../outside.png", filepath.Join(dir, "link.png")); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ api, file, want string }{
		{"chat", "photo.png", ""},
		{"chat", " folder/../photo.png ", ""},
		{"chat", "data:image/png;base64,eA==", ""},
		{"chat", "https://example.com/photo", ""},
		{"chat", "moving.gif", ""},
		{"chat", "large.png", ""},
		{"chat", "large.pdf", ""},
		{"messages", "large.png", "large.png is too large: the API messages takes images of 3.9 MB"},
		{"messages", "large.pdf", "with large.pdf the files are too large: the API messages takes 32.0 MB in all"},
		{"gemini", "moving.gif", "moving.gif is of the type image/gif, which the API gemini does not take"},
		{"gemini", "https://example.com/a.gif?x=1", "which the API gemini does not take"},
		{"chat", "https://example.com/rules.PDF", "is the URL of a PDF, which the API chat takes only as a file"},
		{"chat", "photo.pgn", `the eval set's folder has no file photo.pgn; did you mean`},
		{"chat", "", "the name of the file is empty"},
		{"chat", "folder", "folder is no file"},
		{"chat", "notes.pdf", "notes.pdf is no image (PNG, JPEG, GIF, WebP) and no PDF, but text/plain"},
		{"chat", "../outside.png", "../outside.png is not in the eval set's folder"},
		{"chat", filepath.Join(dir, "photo.png"), "is not in the eval set's folder"},
		{"chat", "link.png", "link.png cannot be read"},
		{"chat", "data:image/png,eA==", "not of the form data:image/png;base64,"},
		{"chat", "data:image/png;base64,%%", "not of the form data:image/png;base64,"},
		{"chat", "data:image/tiff;base64,eA==", "data:image/tiff;base64 is no image (PNG, JPEG, GIF, WebP) and no PDF, but image/tiff"},
	} {
		e := entryOf(t, `{"model": {"api": "`+c.api+`", "url": "http://localhost:1", "name": "m"}, "prompt": "Look.", "files": ["{{f}}"]}`)
		inputs, err := json.Marshal(map[string]string{"f": c.file})
		if err != nil {
			t.Fatal(err)
		}
		_, err = sends(e, inputs, dir)
		if c.want == "" {
			if err != nil {
				t.Errorf("%s, %s: %v", c.api, c.file, err)
			}
			continue
		}
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s, %s: got %v, want %s", c.api, c.file, err, c.want)
		}
		a := newAgent(e, agent.Options{}, func(ctx context.Context, _ time.Duration) error { return ctx.Err() })
		out, err := a.Run(t.Context(), agent.Segment{RolloutID: "r", Number: 1, Attempt: 1, Input: inputs, Dir: t.TempDir(), BaseDir: dir})
		if err != nil || out.Fault == nil || out.Fault.Category != fault.NotRunnable || !strings.Contains(out.Fault.Message, c.want) {
			t.Errorf("%s, %s: the rollout ends with %v, %v", c.api, c.file, out.Fault, err)
		}
	}
}

func TestFilesAreNamed(t *testing.T) {
	dir := t.TempDir()
	written(t, dir, map[string]string{"a.png": pngHead, "b.png": pngHead})
	e := entryOf(t, `{"model": "openai/m", "messages": [{"content": [{"text": "x"}, {"file": "{{f}}"}, {"file": "data:image/png;base64,eA=="}]},
		{"role": "assistant", "content": "y"}, {"content": [{"file": "b.png"}, {"file": "https://example.com/c.png"}, {"text": "{{q}}"}]}]}`)
	got, err := sends(e, json.RawMessage(`{"f": "a.png", "q": "file:a.png"}`), dir)
	if diff := cmp.Diff([]string{"a.png", "b.png"}, got); err != nil || diff != "" {
		t.Errorf("%v, %s", err, diff)
	}
	if got := lacks(e, json.RawMessage(`{"q": "z"}`)); got != "f" {
		t.Errorf("lacks %q", got)
	}
}

// A conversation with a file goes on with the bytes that were sent before, also where the file is not there any
// more. The trajectory has its name, and no data.
func TestAConversationWithAFileGoesOn(t *testing.T) {
	url, bodies := serve(t, calls("tool_calls", "bash", `{"command":"echo x >>ran"}`), answer{status: 400, body: "{}"}, good)
	b := newBench(t)
	b.seg.BaseDir = t.TempDir()
	written(t, b.seg.BaseDir, map[string]string{"photo.png": pngHead + "data"})
	b.seg.Input = json.RawMessage(`{"f": "photo.png", "q": "What is it?"}`)
	const more = `, "files": ["{{f}}"], "prompt": "{{q}}"`
	if out := b.run(t.Context(), model.APIChat, url, more, ""); out.Fault == nil || out.Fault.Category != fault.Model {
		t.Fatalf("%+v", out.Fault)
	}
	if err := os.Remove(filepath.Join(b.seg.BaseDir, "photo.png")); err != nil {
		t.Fatal(err)
	}
	if out := b.run(t.Context(), model.APIChat, url, more, ""); string(out.Output) != `{"content":"fine"}` {
		t.Errorf("%s, %+v", out.Output, out.Fault)
	}
	if len(*bodies) != 3 || !strings.Contains((*bodies)[0], "data:image/png;base64,iVBORw0KGgpkYXRh") || (*bodies)[1] != (*bodies)[2] {
		t.Errorf("%s", *bodies)
	}
	for _, attempt := range []string{"1.1", "1.2"} {
		trail, err := os.ReadFile(filepath.Join(b.dir, attempt, record.FileTrajectory))
		if err != nil || !strings.Contains(string(trail), "[file photo.png]") || strings.Contains(string(trail), "iVBORw0K") {
			t.Errorf("%s, %v", trail, err)
		}
	}
}

// What a request with a file costs is estimated without its data, which are no tokens.
func TestABatchWithAFileIsEstimatedByItsText(t *testing.T) {
	dir := t.TempDir()
	written(t, dir, map[string]string{"photo.png": pngHead + strings.Repeat("x", 1_000_000)})
	a := newAgent(entryOf(t, `{"model": {"url": "http://localhost:1", "name": "m"}, "prompt": "Look.", "files": ["photo.png"], "batch": true}`),
		agent.Options{}, nil)
	out, err := a.Run(t.Context(), agent.Segment{RolloutID: "r", Number: 1, Attempt: 1, Input: json.RawMessage(`{}`), Dir: t.TempDir(), BaseDir: dir})
	if err != nil || len(out.Interrupts) != 1 {
		t.Fatalf("%v, %+v", err, out.Fault)
	}
	var said struct{ InputTokens int64 }
	if err := json.Unmarshal(out.Interrupts[0].Specs[0].Payload, &said); err != nil || said.InputTokens == 0 || said.InputTokens > 100 {
		t.Errorf("%v, %+v", err, said)
	}
}
