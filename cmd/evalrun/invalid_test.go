package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/rogpeppe/go-internal/txtar"

	"github.com/evalrun/evalrun/internal/testenv"
)

// TestInvalidInputs gives evalrun everything that can be wrong and compares what it says with the
// transcript at the end of each archive of testdata/invalid. In the archive's head a line "$
// evalrun …" is a command whose output belongs to the transcript, a line "% …" prepares something
// in a shell; the files are the inputs. -update writes the transcripts.
func TestInvalidInputs(t *testing.T) {
	testenv.NeedSlow(t)
	t.Setenv("EVALRUN_STORE", "")
	t.Setenv("OPENAI_API_KEY", "")
	archives, err := filepath.Glob("testdata/invalid/*.txt")
	if err != nil || len(archives) == 0 {
		t.Fatal("no archives", err)
	}
	for _, file := range archives {
		file, err := filepath.Abs(file)
		if err != nil {
			t.Fatal(err)
		}
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			archive, err := txtar.ParseFile(file)
			if err != nil {
				t.Fatal(err)
			}
			dir := t.TempDir()
			if err := txtar.Write(archive, dir); err != nil {
				t.Fatal(err)
			}
			t.Chdir(dir)
			got := transcript(t, string(archive.Comment))
			last := &archive.Files[len(archive.Files)-1]
			if last.Name != "transcript" {
				t.Fatal("the last file of the archive is not its transcript")
			}
			if *update {
				last.Data = []byte(got)
				if err := os.WriteFile(file, txtar.Format(archive), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			if diff := cmp.Diff(string(last.Data), got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// transcript runs the commands of an archive's head and returns what they print and how they end.
func transcript(t *testing.T, head string) string {
	var out bytes.Buffer
	for line := range strings.Lines(head) {
		line = strings.TrimSpace(line)
		kind, command, _ := strings.Cut(line, " ")
		switch kind {
		case "$":
			args := words.FindAllString(command, -1)
			for i := range args {
				args[i] = strings.ReplaceAll(args[i], "'", "")
			}
			fmt.Fprintln(&out, line)
			code := execute(t.Context(), args[1:], strings.NewReader(""), &out, &out)
			fmt.Fprintf(&out, "exit %d\n\n", code)
		case "%":
			if text, err := exec.Command("sh", "-c", command).CombinedOutput(); err != nil {
				t.Fatalf("%s: %v\n%s", line, err, text)
			}
		}
	}
	dir, err := filepath.EvalSymlinks(".")
	if err == nil {
		dir, err = filepath.Abs(dir)
	}
	if err != nil {
		t.Fatal(err)
	}
	text := strings.ReplaceAll(out.String(), dir, "$WORK")
	return took.ReplaceAllString(changing.ReplaceAllString(text, "$$ID"), "$$TIME")
}

var (
	// words are the words of a command line, which may be in single quotes.
	words = regexp.MustCompile(`('[^']*'|[^ '])+`)
	// changing is what is another at every run.
	took     = regexp.MustCompile(`\b\d+\.\d+s\b`)
	changing = regexp.MustCompile(`[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}`)
)
