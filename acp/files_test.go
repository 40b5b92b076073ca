package acp

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// inAndOut makes a folder for an agent, beside one that is none of its business.
func inAndOut(t *testing.T) (in, out string) {
	t.Helper()
	dir := t.TempDir()
	in, out = filepath.Join(dir, "in"), filepath.Join(dir, "out")
	for _, path := range []string{in, out} {
		if err := os.Mkdir(path, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	write(t, filepath.Join(out, "secret"), "secret")
	return in, out
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func openFiles(t *testing.T, o FilesOptions) *Files {
	t.Helper()
	f, err := NewFiles(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}

// code is the code with which an error is answered; 0 for none.
func code(err error) int {
	var e *rpcError
	if errors.As(err, &e) {
		return e.Code
	}
	if err != nil {
		return CodeInternal
	}
	return 0
}

func TestNothingOutsideIsReadOrWritten(t *testing.T) {
	in, out := inAndOut(t)
	secret := filepath.Join(out, "secret")
	for link, target := range map[string]string{"file": secret, "dir": out, "relative": "../out/secret", "new": filepath.Join(out, "new"), "loop": "loop"} {
		if err := os.Symlink(target, filepath.Join(in, link)); err != nil {
			t.Fatal(err)
		}
	}
	if err := syscall.Mkfifo(filepath.Join(in, "fifo"), 0o600); err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(in, "inside"), "inside")
	if err := os.Symlink("inside", filepath.Join(in, "harmless")); err != nil {
		t.Fatal(err)
	}
	f := openFiles(t, FilesOptions{Roots: folders(in)})
	for path, want := range map[string]int{
		secret:                  CodeInvalidParams,
		in + "/file":            CodeInvalidParams,
		in + "/dir/secret":      CodeInvalidParams,
		in + "/relative":        CodeInvalidParams,
		in + "/new":             CodeInvalidParams,
		in + "/loop":            CodeInvalidParams,
		in + "/../out/secret":   CodeInvalidParams,
		in + "/fifo":            CodeInvalidParams,
		in + "/":                CodeInvalidParams,
		in + "sibling":          CodeInvalidParams,
		"inside":                CodeInvalidParams,
		"":                      CodeInvalidParams,
		"/":                     CodeInvalidParams,
		in + "/no/such/folder":  CodeResourceMissing,
		in + "/./x/../inside":   0,
		in + "/harmless":        0,
		in + "/inside\x00":      CodeInvalidParams,
		in + "/" + "\xff":       CodeResourceMissing,
		in + "/inside/deeper":   CodeInvalidParams,
		in + "/dir/../inside":   0, // the name counts, not where the link leads
		in + "/dir/../../x":     CodeInvalidParams,
		filepath.Dir(in) + "/x": CodeInvalidParams,
	} {
		if _, err := f.read(t.Context(), readFile{Path: path}); code(err) != want {
			t.Errorf("read %q: got %v, want %d", path, err, want)
		}
		if want == CodeResourceMissing && !strings.Contains(path, "folder") {
			continue // it can be written
		}
		if _, err := f.write(t.Context(), writeFile{path, "changed"}); code(err) != want {
			t.Errorf("write %q: got %v, want %d", path, err, want)
		}
	}
	if got, err := os.ReadFile(secret); err != nil || string(got) != "secret" {
		t.Errorf("outside there is %q, %v", got, err)
	}
	if entries, err := os.ReadDir(out); err != nil || len(entries) != 1 {
		t.Errorf("outside there are %v, %v", entries, err)
	}
	if got, err := os.ReadFile(filepath.Join(in, "inside")); err != nil || string(got) != "changed" {
		t.Errorf("inside there is %q, %v", got, err)
	}
}

func TestRootsMayBeLinksAndSeveral(t *testing.T) {
	in, out := inAndOut(t)
	link := filepath.Join(filepath.Dir(in), "link")
	if err := os.Symlink(in, link); err != nil {
		t.Fatal(err)
	}
	f := openFiles(t, FilesOptions{Roots: folders(link, out)})
	for _, path := range []string{link + "/a", in + "/a", out + "/secret"} { // an agent may know a folder by its real name
		if _, err := f.write(t.Context(), writeFile{path, path}); err != nil {
			t.Errorf("write: %v", err)
		}
		if got, err := f.read(t.Context(), readFile{Path: path}); err != nil || got.(map[string]string)["content"] != path {
			t.Errorf("read: %v, %v", got, err)
		}
	}
	for _, roots := range [][]string{{"relative"}, {in, filepath.Join(in, "missing")}} {
		if f, err := NewFiles(FilesOptions{Roots: folders(roots...)}); err == nil || f != nil {
			t.Errorf("%q is accepted", roots)
		}
	}
}

func TestLinesOfAFile(t *testing.T) {
	in, _ := inAndOut(t)
	path := filepath.Join(in, "f")
	write(t, path, "one\ntwo\nthree")
	f := openFiles(t, FilesOptions{Roots: folders(in), MaxSize: 16})
	limit := func(n int) *int { return &n }
	for _, v := range []struct {
		line  int
		limit *int
		want  string
	}{
		{0, nil, "one\ntwo\nthree"}, {1, nil, "one\ntwo\nthree"}, {2, nil, "two\nthree"}, {3, limit(5), "three"}, {4, nil, ""}, {1 << 60, limit(1 << 60), ""},
		{0, limit(1), "one\n"}, {2, limit(1), "two\n"}, {1, limit(3), "one\ntwo\nthree"}, {2, limit(0), ""},
	} {
		got, err := f.read(t.Context(), readFile{path, v.line, v.limit})
		if err != nil || got.(map[string]string)["content"] != v.want {
			t.Errorf("line %d, limit %v: got %q, %v", v.line, v.limit, got, err)
		}
	}
	for _, p := range []readFile{{Path: path, Line: -1}, {Path: path, Limit: limit(-1)}} {
		if _, err := f.read(t.Context(), p); code(err) != CodeInvalidParams {
			t.Errorf("%+v: got %v", p, err)
		}
	}
	for name, text := range map[string]string{"large": strings.Repeat("x", 17), "binary": "\xff\x00"} {
		write(t, filepath.Join(in, name), text)
		if _, err := f.read(t.Context(), readFile{Path: filepath.Join(in, name)}); code(err) != CodeInvalidParams {
			t.Errorf("%s: got %v", name, err)
		}
	}
	if _, err := f.write(t.Context(), writeFile{path, strings.Repeat("x", 17)}); code(err) != CodeInvalidParams {
		t.Errorf("a file that is too large: %v", err)
	}
	if _, err := f.write(t.Context(), writeFile{path, "short"}); err != nil {
		t.Error(err)
	}
	if got, _ := os.ReadFile(path); string(got) != "short" {
		t.Errorf("got %q", got)
	}
}

func TestReadOnlyFilesCannotBeWritten(t *testing.T) {
	in, _ := inAndOut(t)
	c, p := dial(t, &client{}, Options{Files: openFiles(t, FilesOptions{Roots: folders(in), ReadOnly: true})})
	go func() { _, _ = c.Initialize(t.Context(), Implementation{}) }() // it is not answered
	if m := p.expect("initialize"); !strings.Contains(string(m.Params), `"fs":{"readTextFile":true,"writeTextFile":false}`) {
		t.Errorf("advertised %s", m.Params)
	}
	p.send(`{"jsonrpc":"2.0","id":1,"method":"fs/write_text_file","params":{"sessionId":"s","path":"` + in + `/x","content":""}}` + "\n")
	if m := p.expect(""); !strings.Contains(string(m.Error), "-32601") {
		t.Errorf("got %+v", m)
	}
	p.send(`{"jsonrpc":"2.0","id":2,"method":"fs/read_text_file","params":{"sessionId":"s","path":7}}` + "\n")
	if m := p.expect(""); !strings.Contains(string(m.Error), "-32602") {
		t.Errorf("got %+v", m)
	}
}

// Given a folder that the agent calls by another name, then that name is the only one.
func TestRootsElsewhere(t *testing.T) {
	host := t.TempDir()
	write(t, filepath.Join(host, "inside"), "inside")
	f := openFiles(t, FilesOptions{Roots: []Root{{Path: "/app", Host: host}}})
	if got, err := f.read(t.Context(), readFile{Path: "/app/inside"}); err != nil || got.(map[string]string)["content"] != "inside" {
		t.Errorf("got %v, %v", got, err)
	}
	for _, path := range []string{filepath.Join(host, "inside"), "/app/../inside", "/app2/inside"} {
		if _, err := f.read(t.Context(), readFile{Path: path}); code(err) != CodeInvalidParams {
			t.Errorf("%s: %v", path, err)
		}
	}
}

// folders returns roots whose paths are the same for the agent and on this machine.
func folders(paths ...string) []Root {
	var out []Root
	for _, path := range paths {
		out = append(out, Root{Path: path})
	}
	return out
}
