package durable

import (
	"bytes"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// maxLinks is as many links as Linux follows.
const maxLinks = 40

// WriteOutput writes to a path that a user has named. It replaces a file as [WriteFile] does,
// through links. It opens a device, a named pipe or a descriptor of this process, such as
// /dev/stdout, and writes to it.
func WriteOutput(path string, mode os.FileMode, write func(io.Writer) error) error {
	target, isFile, err := Follow(path)
	if err != nil {
		return err
	}
	if isFile {
		return WriteFile(target, mode, write)
	}
	f, err := openStream(target)
	if err != nil {
		return err
	}
	return errors.Join(WriteWhole(f, write), f.Close())
}

// WriteWhole writes to a stream what write writes, or nothing of it if that fails: what a stream has
// got cannot be taken back.
func WriteWhole(to io.Writer, write func(io.Writer) error) (err error) {
	spool, err := os.CreateTemp("", "evalrun-*")
	if err != nil { // there may be no place for temporary files
		var all bytes.Buffer
		if err := write(&all); err != nil {
			return err
		}
		_, err := all.WriteTo(to)
		return err
	}
	defer func() { err = errors.Join(err, spool.Close()) }()
	if err := os.Remove(spool.Name()); err != nil { // it goes with the process
		return err
	}
	if err := write(spool); err != nil {
		return err
	}
	if _, err := spool.Seek(0, io.SeekStart); err != nil {
		return err
	}
	_, err = io.Copy(to, spool)
	return err
}

// Follow follows the links at a path and returns its target, and whether a file is or can be there.
func Follow(path string) (target string, isFile bool, err error) {
	target = path
	for range maxLinks {
		if _, ok := descriptor(target); ok {
			return target, false, nil
		}
		info, err := os.Lstat(target)
		if err != nil {
			return target, true, nil //nolint:nilerr // not there yet; what else may be wrong is said when it is made
		}
		if info.Mode()&fs.ModeSymlink == 0 {
			return target, info.Mode().IsRegular() || info.IsDir(), nil
		}
		to, err := os.Readlink(target)
		if err != nil {
			return "", false, err
		}
		if !filepath.IsAbs(to) {
			to = filepath.Join(filepath.Dir(target), to)
		}
		target = to
	}
	return "", false, &fs.PathError{Op: "open", Path: path, Err: syscall.ELOOP}
}

// SameFile reports whether two paths lead to the same file, which exists.
func SameFile(a, b string) bool {
	x, errA := os.Stat(a)
	y, errB := os.Stat(b)
	return errA == nil && errB == nil && os.SameFile(x, y)
}

// descriptor returns the number of the descriptor of this process that a path stands for. The file
// behind it must not be replaced, because a program that has opened it would not see that.
func descriptor(path string) (int, bool) {
	dir, err := filepath.EvalSymlinks(filepath.Dir(path))
	if err != nil {
		return 0, false
	}
	own := "/proc/" + strconv.Itoa(os.Getpid())
	ofThread := strings.HasPrefix(dir, own+"/task/") && strings.HasSuffix(dir, "/fd")
	if dir != own+"/fd" && !ofThread && dir != "/dev/fd" {
		return 0, false
	}
	fd, err := strconv.Atoi(filepath.Base(path))
	return fd, err == nil
}

// openStream opens a path that is no file. It duplicates a descriptor, so that writing goes on
// where it stands.
func openStream(path string) (*os.File, error) {
	fd, ok := descriptor(path)
	if !ok {
		return os.OpenFile(path, os.O_WRONLY|syscall.O_NOCTTY, 0)
	}
	own, err := syscall.Dup(fd)
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: path, Err: err}
	}
	syscall.CloseOnExec(own)
	return os.NewFile(uintptr(own), path), nil
}
