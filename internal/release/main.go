// Command release makes the things that people install out of programs that are already built:
// archives, Python wheels, npm packages, a container image as an OCI archive, a Homebrew formula, and
// the configuration with which nfpm makes packages for Linux. It states where they come from. It knows the
// formats and where a file belongs in each. The same programs give the same bytes: every time in
// them is that of the commit.
//
//	go run ./internal/release -version v1.2.3 -commit SHA -date TIME -share DIR packages DIST
//	go run ./internal/release -version v1.2.3 -commit SHA -date TIME provenance DIST
package main

import (
	_ "embed"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// installer is the script that installs the program of a release.
//
//go:embed install.sh
var installer []byte

const (
	homepage = "https://github.com/evalrun/evalrun"
	summary  = "Run eval sets against AI agents; suspend while jobs run, resume, score"
)

func main() {
	var r release
	flag.StringVar(&r.version, "version", "", "the version, as git describe has it")
	flag.StringVar(&r.commit, "commit", "", "the commit that was built")
	date := flag.String("date", "", "the time of the commit, as RFC 3339 has it")
	flag.StringVar(&r.share, "share", "", "the folder with completions/, man/ and inside/")
	flag.StringVar(&r.python, "python", "", "the folder with the Python package that a wheel carries, too")
	flag.Parse()
	var err error
	if r.date, err = time.Parse(time.RFC3339, *date); err == nil {
		err = r.run(flag.Args())
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "release:", err)
		os.Exit(1)
	}
}

func (r *release) run(args []string) error {
	if len(args) != 2 || r.version == "" {
		return errors.New("usage: release -version V -commit SHA -date TIME [-share DIR] packages|provenance DIST")
	}
	r.dist = args[1]
	switch args[0] {
	case "packages":
		return r.packages()
	case "provenance":
		return r.provenance()
	}
	return fmt.Errorf("expected packages or provenance, got %q", args[0])
}

// release is what is made. dist is the folder with the programs evalrun_OS_ARCH, into which all of it
// is written.
type release struct {
	version, commit     string
	date                time.Time
	dist, share, python string
}

// target is a system for which there is a program.
type target struct{ os, arch string }

func (t target) String() string { return "evalrun_" + t.os + "_" + t.arch }

// file is a file of a package, by its slash-separated path in there. A folder's name ends in a slash.
type file struct {
	name string
	mode fs.FileMode
	data []byte
}

// packages makes everything that is made of the programs in dist.
func (r *release) packages() error {
	found, err := filepath.Glob(filepath.Join(r.dist, "evalrun_*_*"))
	if err != nil {
		return err
	}
	var targets []target
	for _, name := range found {
		system, arch, _ := strings.Cut(strings.TrimPrefix(filepath.Base(name), "evalrun_"), "_")
		if !strings.Contains(arch, ".") {
			targets = append(targets, target{system, arch})
		}
	}
	if len(targets) == 0 {
		return fmt.Errorf("%s has no program evalrun_OS_ARCH", r.dist)
	}
	share, err := shared(r.share)
	if err != nil {
		return err
	}
	sums := map[target]string{}
	for _, t := range targets {
		program, err := os.ReadFile(filepath.Join(r.dist, t.String()))
		if err != nil {
			return err
		}
		// The folder in the archive is that of the program's name, so that nothing is unpacked into a full folder.
		files := []file{{t.String() + "/evalrun", 0o755, program}}
		for _, f := range share {
			files = append(files, file{t.String() + "/" + f.name, f.mode, f.data})
		}
		archive, err := tarGzip(files, r.date)
		if err != nil {
			return err
		}
		sums[t] = sum(archive)
		wheel, err := r.wheel(t, program, share)
		if err != nil {
			return err
		}
		npm, err := r.npmProgram(t, program, share)
		if err != nil {
			return err
		}
		if err := errors.Join(r.write(t.String()+".tar.gz", archive), r.write(r.wheelName(t), wheel),
			r.write(npmName(t)+"-"+r.semver()+".tgz", npm)); err != nil {
			return err
		}
		if t.os == "linux" {
			if err := r.write(t.String()+".nfpm.yaml", r.nfpm(t)); err != nil {
				return err
			}
		}
	}
	npm, err := r.npmLauncher(targets)
	if err != nil {
		return err
	}
	image, err := r.image(targets, share)
	if err != nil {
		return err
	}
	return errors.Join(r.write("evalrun-"+r.semver()+".tgz", npm), r.write("evalrun_image.tar", image),
		r.write("evalrun.rb", r.formula(sums)), r.write("install.sh", installer))
}

func (r *release) write(name string, data []byte) error {
	return os.WriteFile(filepath.Join(r.dist, name), data, 0o644)
}

// inside are those of the files that all packages have that are the programs for containers, in another
// folder.
func inside(share []file, folder string) (files []file) {
	for _, f := range share {
		if name, ok := strings.CutPrefix(f.name, "inside/"); ok {
			files = append(files, file{path.Join(folder, name), f.mode, f.data})
		}
	}
	return files
}

// shared reads the completions, the man pages and the programs for containers, which all packages have.
func shared(dir string) (files []file, err error) {
	err = fs.WalkDir(os.DirFS(dir), ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		data, err := os.ReadFile(filepath.Join(dir, filepath.FromSlash(name)))
		mode := fs.FileMode(0o644)
		if strings.HasPrefix(name, "inside/") {
			mode = 0o755
		}
		files = append(files, file{path.Clean(name), mode, data})
		return err
	})
	slices.SortFunc(files, func(a, b file) int { return strings.Compare(a.name, b.name) })
	return files, err
}
