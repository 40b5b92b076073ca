package images

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/evalrun/evalrun/internal/container"
	"github.com/evalrun/evalrun/internal/sandbox"
	"github.com/evalrun/evalrun/internal/snapshot"
	"github.com/evalrun/evalrun/internal/testenv"
)

// spent is the time that something has taken in all turns of a benchmark.
type spent time.Duration

func (s *spent) add(b *testing.B, what func() error) {
	b.Helper()
	began := time.Now()
	must(b, what())
	*s += spent(time.Since(began))
}

func (s spent) ms(b *testing.B) float64 { return float64(s) / 1e6 / float64(b.N) }

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// beside is a task for measuring beside the docker command, which asks the same daemon. Its image is built.
func beside(b *testing.B) (k *task, d *container.Daemon, image string, docker func(args ...string) error) {
	b.Helper()
	program, err := exec.LookPath("docker")
	if os.Getenv(testenv.Docker) == "" || err != nil {
		b.Skipf("set %s=required, where there are dockerd and docker", testenv.Docker)
	}
	k = newTask(b, asDocker, plain, "WORKDIR /app\n", "", "")
	b.Setenv("DOCKER_HOST", theDaemon(b).Host)
	d, err = container.OpenDaemon(b.Context())
	must(b, err)
	return k, d, k.passes().Image, func(args ...string) error {
		cmd := exec.CommandContext(b.Context(), program, args...)
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("docker %s: %w: %s", args[0], err, out)
		}
		return nil
	}
}

func (k *task) remote(d *container.Daemon, image, from string) *container.Remote {
	return d.NewRemote(container.RemoteSpec{Rollout: "benchmark/" + k.t.Name(), Image: image, Workdir: "/app",
		Limits: container.Limits{PIDs: 4096}, Executable: filepath.Join(programs, "evalrun"), From: from, Public: true})
}

// until runs a command in a container of a daemon, until it has said something.
func (k *task) until(r *container.Remote, says string, more sandbox.Config) (*sandbox.Process, error) {
	more.Isolation, more.Remote, more.Network = sandbox.IsolationDocker, r, true
	p, err := sandbox.Start(sandbox.Command{Marker: "benchmark", Executable: filepath.Join(programs, "evalrun"),
		Interactive: true, Path: "/bin/sh", Args: []string{"sh", "-c", "echo " + says + "; read -r line"}, Dir: "/app",
		Config: &more, Stderr: os.Stderr})
	if err != nil {
		return nil, err
	}
	said := make([]byte, len(says))
	_, err = io.ReadFull(p.Stdout, said)
	return p, errors.Join(err, p.Ready(context.Background()))
}

// BenchmarkStartInADaemon starts processes of rollouts in containers of a daemon, from the question for a container
// to the first line of the process, by turns with docker run of the same image: what an oracle has, which gets the
// solution, and what an agent has, with a home and a way to evalrun. It runs a whole rollout as well.
func BenchmarkStartInADaemon(b *testing.B) {
	k, d, image, docker := beside(b)
	socket := filepath.Join(b.TempDir(), "s")
	l, err := net.Listen("unix", socket)
	must(b, err)
	defer func() { _ = l.Close() }()
	var usual, oracle, agent, whole spent
	for b.Loop() {
		usual.add(b, func() error { return docker("run", "--rm", image, "/bin/sh", "-c", ":") })
		for _, one := range []struct {
			*spent
			sandbox.Config
		}{
			{&oracle, sandbox.Config{Binds: []sandbox.Bind{{Host: k.path("solution"), Inside: "/solution"}}}},
			{&agent, sandbox.Config{Binds: []sandbox.Bind{{Host: b.TempDir(), Inside: "/home/evalrun", Writable: true}},
				Own: []string{"/home/evalrun"}, User: "app", Forwards: []sandbox.Forward{{Port: 8080, Socket: socket}}}},
		} {
			r := k.remote(d, image, "")
			var p *sandbox.Process
			one.add(b, func() (err error) { p, err = k.until(r, "runs", one.Config); return err })
			must(b, p.Stdin.Close())
			_, err := p.Wait(b.Context())
			must(b, errors.Join(err, r.Remove(b.Context())))
		}
		whole.add(b, func() error { k.passes(); return nil })
	}
	b.ReportMetric(usual.ms(b), "ms-docker-run")
	b.ReportMetric(float64(oracle)/float64(usual), "x-oracle-start")
	b.ReportMetric(float64(agent)/float64(usual), "x-agent-start")
	b.ReportMetric(float64(whole)/float64(usual), "x-rollout")
}

// BenchmarkSuspensionInADaemon takes 200 MB in 5,000 files out of a container and puts them into a new one, as a
// suspended rollout has it, by turns with docker commit of the container, and with docker save and docker load of that
// image.
func BenchmarkSuspensionInADaemon(b *testing.B) {
	k, d, image, docker := beside(b)
	tree := filepath.Join(b.TempDir(), "tree")
	fill(b, tree, testenv.Size(5000, 100), testenv.Size(200, 4)<<20)
	var commit, over, suspended, restored spent
	for b.Loop() {
		dir := b.TempDir()
		s := snapshot.Store{Dir: filepath.Join(dir, "snapshots"), Root: dir, Overlay: snapshot.OverlayTrusted}
		must(b, os.Mkdir(filepath.Join(dir, "upper"), 0o700))
		r := k.remote(d, image, "")
		must(b, r.Put(tree, "/data", true))
		p, err := k.until(r, "runs", sandbox.Config{})
		must(b, err)
		must(b, p.Stdin.Close())
		_, err = p.Wait(b.Context())
		must(b, err)

		containers, err := d.List(b.Context(), "dev.evalrun.rollout=benchmark/"+b.Name())
		must(b, err)
		const name = "evalrun-benchmark"
		for id := range containers {
			commit.add(b, func() error { return docker("commit", id, name) })
		}
		archive := filepath.Join(dir, "archive")
		over.add(b, func() error { return docker("save", "--output", archive, name) })
		must(b, docker("rmi", name))
		over.add(b, func() error { return docker("load", "--input", archive) })
		must(b, errors.Join(docker("rmi", name), os.Remove(archive)))

		suspended.add(b, func() error {
			if err := r.Keep(filepath.Join(dir, "upper")); err != nil {
				return err
			}
			_, err := s.Take("kept", "upper")
			return err
		})
		must(b, r.Remove(b.Context()))
		must(b, errors.Join(os.RemoveAll(filepath.Join(dir, "upper")), os.Remove(filepath.Join(s.Dir, "untouched"))))
		r = k.remote(d, image, filepath.Join(dir, "upper"))
		restored.add(b, func() error {
			if err := s.Restore("kept"); err != nil {
				return err
			}
			p, err = k.until(r, "runs", sandbox.Config{})
			return err
		})
		must(b, p.Stdin.Close())
		_, err = p.Wait(b.Context())
		must(b, err)
		again := filepath.Join(dir, "again")
		must(b, r.Get("/data", again))
		if out, err := exec.CommandContext(b.Context(), "diff", "-r", tree, again).CombinedOutput(); err != nil {
			b.Fatalf("%v: %s", err, bytes.TrimSpace(out))
		}
		must(b, errors.Join(r.Remove(b.Context()), os.RemoveAll(dir)))
	}
	b.ReportMetric(commit.ms(b), "ms-commit")
	b.ReportMetric(over.ms(b), "ms-save-load")
	b.ReportMetric(float64(suspended)/float64(commit), "x-commit")
	b.ReportMetric(float64(restored)/float64(over), "x-save-load")
	b.ReportMetric(float64(suspended+restored)/float64(commit+over), "x-both")
}

// fill makes files of one size, half of which is random.
func fill(b *testing.B, dir string, files, size int) {
	b.Helper()
	random := rand.NewChaCha8([32]byte{1})
	for i := range files {
		data := make([]byte, size/files)
		_, _ = random.Read(data[:len(data)/2]) // never fails
		file := filepath.Join(dir, fmt.Sprint(i%50), fmt.Sprint(i))
		must(b, errors.Join(os.MkdirAll(filepath.Dir(file), 0o755), os.WriteFile(file, data, 0o644)))
	}
}
