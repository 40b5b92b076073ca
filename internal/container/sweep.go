package container

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
)

// The labels of everything that is made here. The value of labelRollout is the marker of the
// rollout, that of labelOwner tells the process that has made it from every other.
const (
	labelRollout = "dev.evalrun.rollout"
	labelOwner   = "dev.evalrun.owner"
)

func labels(rollout string) []string {
	return []string{labelRollout + "=" + rollout, labelOwner + "=" + owner(os.Getpid())}
}

// containerName is the name of the container of a rollout and a purpose.
func containerName(rollout, purpose string) string {
	return "evalrun-" + short(rollout) + "-" + purpose
}

func short(rollout string) string {
	sum := sha256.Sum256([]byte(rollout))
	return hex.EncodeToString(sum[:8])
}

// owner tells a process of this machine from every other, also from one that gets its id later:
// boot, PID namespace, id and start time. It is empty if there is no such process.
func owner(pid int) string {
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return "" // not Linux
	}
	space, err := os.Readlink("/proc/self/ns/pid")
	if err != nil {
		return ""
	}
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return ""
	}
	// Behind the program's name, which may hold anything, the fields count from 3; 22 is the start.
	fields := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:])
	if len(fields) < 20 || string(fields[0]) == "Z" {
		return ""
	}
	return fmt.Sprintf("%s:%s:%d:%s", bytes.TrimSpace(boot), strings.Trim(strings.TrimPrefix(space, "pid:"), "[]"), pid, fields[19])
}

// isGone reports whether the process that made something is dead. Of another PID namespace nobody
// can tell.
func isGone(made string) bool {
	parts := strings.Split(made, ":")
	if len(parts) != 4 {
		return false
	}
	pid, err := strconv.Atoi(parts[2])
	if err != nil {
		return false
	}
	ours := strings.Split(owner(os.Getpid()), ":")
	if len(ours) != 4 {
		return false
	}
	if ours[0] != parts[0] {
		return true // the machine was started anew, and no container runs since then
	}
	return ours[1] == parts[1] && owner(pid) != made
}

// Sweep removes the containers, networks and volumes whose evalrun is gone, of every store. It
// returns how many containers it removed.
func (e *Engine) Sweep(ctx context.Context) (int, error) {
	removed := 0
	var failed error
	for _, kind := range []struct {
		list   []string
		remove func(name string) error
	}{
		{[]string{"ps", "-a", "--filter", "label=" + labelOwner, "--format", "{{.Names}}\t{{.Label \"" + labelOwner + "\"}}"}, func(name string) error {
			removed++
			return e.removeContainer(ctx, name)
		}},
		{[]string{"network", "ls", "--filter", "label=" + labelOwner, "--format", "{{.Name}}"}, func(name string) error { return e.removeOther(ctx, "network", name) }},
		{[]string{"volume", "ls", "--filter", "label=" + labelOwner, "--format", "{{.Name}}"}, func(name string) error { return e.removeOther(ctx, "volume", name) }},
	} {
		out, err := e.run(ctx, kind.list...)
		if err != nil {
			return removed, errors.Join(failed, err)
		}
		for line := range strings.Lines(out) {
			name, made, hasOwner := strings.Cut(strings.TrimSpace(line), "\t")
			if !hasOwner {
				made, err = e.run(ctx, kind.list[0], "inspect", name, "--format", "{{index .Labels \""+labelOwner+"\"}}")
				if err != nil {
					continue // gone meanwhile
				}
			}
			if name != "" && isGone(made) {
				failed = errors.Join(failed, kind.remove(name))
			}
		}
	}
	return removed, failed
}

// removeOther removes a network or a volume. One that is not there is fine.
func (e *Engine) removeOther(ctx context.Context, kind, name string) error {
	_, err := e.run(ctx, kind, "rm", "-f", name)
	if says(err, "no such", "not found") {
		return nil
	}
	return err
}
