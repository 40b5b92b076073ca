package sandbox

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"
)

// account is a user of an image.
type account struct {
	uid, gid int
	groups   []int
	home     string
}

// findAccount finds a user in the databases of an image, by the rules of Docker's --user: a name or
// number, with ":" and a group if it is to have another than its own. A number need not be in a
// database, but a name must. read returns the content of a file of the image.
func findAccount(spec string, read func(name string) ([]byte, error)) (account, error) {
	user, group, withGroup := strings.Cut(spec, ":")
	if user == "" {
		user = "0"
	}
	passwd, err := database("passwd", read)
	if err != nil {
		return account{}, err
	}
	out := account{home: "/"}
	number, err := strconv.ParseUint(user, 10, 31)
	numeric, found, name := err == nil, false, ""
	for _, fields := range passwd {
		if len(fields) < 6 || fields[0] != user && (!numeric || fields[2] != strconv.FormatUint(number, 10)) {
			continue
		}
		uid, uerr := strconv.ParseUint(fields[2], 10, 31)
		gid, gerr := strconv.ParseUint(fields[3], 10, 31)
		if err := errors.Join(uerr, gerr); err != nil {
			return account{}, fmt.Errorf("/etc/passwd of the image has no numbers for user %q: %s",
				user, strings.Join(fields, ":"))
		}
		out.uid, out.gid, name, found = int(uid), int(gid), fields[0], true
		if fields[5] != "" {
			out.home = fields[5]
		}
		break
	}
	switch {
	case found:
	case numeric:
		out.uid = int(number)
		if number == 0 {
			out.home = "/root"
		}
	case passwd == nil:
		return account{}, fmt.Errorf("the image has no user %q: it has no /etc/passwd", user)
	default:
		return account{}, fmt.Errorf("the image has no user %q in its /etc/passwd", user)
	}
	groups, err := database("group", read)
	if err != nil {
		return account{}, err
	}
	if withGroup {
		out.gid, err = findGroup(group, groups)
		return out, err
	}
	out.groups = groupsOf(name, out.gid, groups)
	return out, nil
}

// groupsOf are the numbers of the groups that name a user as their member, and its own.
func groupsOf(user string, own int, groups [][]string) []int {
	out := []int{own}
	for _, fields := range groups {
		if len(fields) < 4 || user == "" || !slices.Contains(strings.Split(fields[3], ","), user) {
			continue
		}
		if gid, err := strconv.ParseUint(fields[2], 10, 31); err == nil && !slices.Contains(out, int(gid)) {
			out = append(out, int(gid))
		}
	}
	return out
}

func findGroup(name string, groups [][]string) (int, error) {
	for _, fields := range groups {
		if len(fields) > 2 && fields[0] == name {
			if gid, err := strconv.ParseUint(fields[2], 10, 31); err == nil {
				return int(gid), nil
			}
		}
	}
	if gid, err := strconv.ParseUint(name, 10, 31); err == nil {
		return int(gid), nil
	}
	return 0, fmt.Errorf("the image has no group %q in its /etc/group", name)
}

// maxDatabase is how much of a user database is read.
const maxDatabase = 4 << 20

// database reads a file of /etc by its fields. An image need not have the file.
func database(name string, read func(string) ([]byte, error)) (out [][]string, err error) {
	data, err := read("etc/" + name)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("/etc/%s of the image cannot be read: %w", name, err)
	case len(data) > maxDatabase:
		return nil, fmt.Errorf("/etc/%s of the image is larger than %d MiB", name, maxDatabase>>20)
	}
	for line := range strings.Lines(string(data)) {
		out = append(out, strings.Split(strings.TrimSpace(line), ":"))
	}
	return out, nil
}

// readDatabase reads a file that processes of a space may have replaced with anything.
func readDatabase(open func(flag int) (*os.File, error)) ([]byte, error) {
	f, err := open(os.O_RDONLY | syscall.O_NONBLOCK) // a pipe in its place must not block us
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }() // only read
	if info, err := f.Stat(); err != nil || !info.Mode().IsRegular() {
		return nil, errors.Join(errors.New("it is not a file"), err)
	}
	return io.ReadAll(io.LimitReader(f, maxDatabase+1))
}
