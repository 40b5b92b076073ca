package sandbox

import (
	"bytes"
	"encoding/binary"
	"runtime"

	"golang.org/x/sys/unix"
)

// rule says how a system call is treated in a space.
type rule struct {
	// native and i386 are its numbers, 0 where there is none.
	native, i386 uint32
	// errno is the error that the call returns.
	errno unix.Errno
	// only is the condition for the rule, nil for always.
	only *condition
}

// condition is a test of the low half of a call's first argument.
type condition struct {
	// mask selects the bits that count. The rule holds for a value that is (or, with not, is not) one
	// of the values.
	mask   uint32
	values []uint32
	not    bool
}

var newUser = &condition{mask: unix.CLONE_NEWUSER, values: []uint32{unix.CLONE_NEWUSER}}

// rules refuse what Docker's default profile refuses as well
// (https://docs.docker.com/engine/security/seccomp/). It lists what is allowed; this is the
// reverse, so that no agent fails for a call that is newer than evalrun.
var rules = []rule{
	// Keys belong to a user, and not to a namespace.
	{native: unix.SYS_KEYCTL, i386: 288, errno: unix.EPERM},
	{native: unix.SYS_ADD_KEY, i386: 286, errno: unix.EPERM},
	{native: unix.SYS_REQUEST_KEY, i386: 287, errno: unix.EPERM},
	// Mounts could uncover what is hidden. A user namespace of its own would give a process the
	// right to them.
	{native: unix.SYS_MOUNT, i386: 21, errno: unix.EPERM},
	{native: unix.SYS_UMOUNT2, i386: 52, errno: unix.EPERM},
	{i386: 22, errno: unix.EPERM}, // umount
	{native: unix.SYS_PIVOT_ROOT, i386: 217, errno: unix.EPERM},
	{native: unix.SYS_CHROOT, i386: 61, errno: unix.EPERM},
	{native: unix.SYS_OPEN_TREE, i386: 428, errno: unix.EPERM},
	{native: unix.SYS_MOVE_MOUNT, i386: 429, errno: unix.EPERM},
	{native: unix.SYS_FSOPEN, i386: 430, errno: unix.EPERM},
	{native: unix.SYS_FSCONFIG, i386: 431, errno: unix.EPERM},
	{native: unix.SYS_FSMOUNT, i386: 432, errno: unix.EPERM},
	{native: unix.SYS_FSPICK, i386: 433, errno: unix.EPERM},
	{native: unix.SYS_MOUNT_SETATTR, i386: 442, errno: unix.EPERM},
	{native: unix.SYS_SETNS, i386: 346, errno: unix.EPERM},
	{native: unix.SYS_UNSHARE, i386: 310, errno: unix.EPERM, only: newUser},
	{native: unix.SYS_CLONE, i386: 120, errno: unix.EPERM, only: newUser},
	{native: unix.SYS_CLONE3, i386: 435, errno: unix.ENOSYS}, // its flags cannot be seen here; C libraries then call clone
	{native: unix.SYS_OPEN_BY_HANDLE_AT, i386: 342, errno: unix.EPERM},
	// These concern this machine's kernel.
	{native: unix.SYS_BPF, i386: 357, errno: unix.EPERM},
	{native: unix.SYS_PERF_EVENT_OPEN, i386: 336, errno: unix.EPERM},
	{native: unix.SYS_USERFAULTFD, i386: 374, errno: unix.EPERM},
	{native: unix.SYS_IO_URING_SETUP, i386: 425, errno: unix.EPERM},
	{native: unix.SYS_IO_URING_ENTER, i386: 426, errno: unix.EPERM},
	{native: unix.SYS_IO_URING_REGISTER, i386: 427, errno: unix.EPERM},
	{native: unix.SYS_INIT_MODULE, i386: 128, errno: unix.EPERM},
	{native: unix.SYS_FINIT_MODULE, i386: 350, errno: unix.EPERM},
	{native: unix.SYS_DELETE_MODULE, i386: 129, errno: unix.EPERM},
	{native: unix.SYS_KEXEC_LOAD, i386: 283, errno: unix.EPERM},
	{native: unix.SYS_KEXEC_FILE_LOAD, errno: unix.EPERM},
	{native: unix.SYS_REBOOT, i386: 88, errno: unix.EPERM},
	{native: unix.SYS_SWAPON, i386: 87, errno: unix.EPERM},
	{native: unix.SYS_SWAPOFF, i386: 115, errno: unix.EPERM},
	{native: unix.SYS_ACCT, i386: 51, errno: unix.EPERM},
	{native: unix.SYS_QUOTACTL, i386: 131, errno: unix.EPERM},
	{native: unix.SYS_LOOKUP_DCOOKIE, i386: 253, errno: unix.EPERM},
	// The personalities that Docker allows: Linux, with or without 32-bit addresses or a fixed
	// layout, and "tell me".
	{native: unix.SYS_PERSONALITY, i386: 136, errno: unix.EPERM, only: &condition{
		mask: 0xffffffff, values: []uint32{0, 0x0008, 0x20000, 0x20008, 0xffffffff}, not: true}},
	// Sockets to the host of a virtual machine ignore network namespaces.
	{native: unix.SYS_SOCKET, i386: 359, errno: unix.EPERM,
		only: &condition{mask: 0xffffffff, values: []uint32{unix.AF_VSOCK}}},
}

// Offsets in struct seccomp_data. The low half of the first argument is its beginning, as both
// architectures are little-endian.
const (
	offsetNumber       = 0
	offsetArchitecture = 4
	offsetArgument     = 16
)

// seccomp is the filter as the kernel wants it. It is empty on an architecture whose calls are not
// known here. Calls by the convention of another architecture do not exist, except those of i386 on
// amd64.
func seccomp() []byte {
	var p filter
	switch runtime.GOARCH {
	case "amd64":
		p.load(offsetArchitecture)
		p.unless(unix.BPF_JEQ, unix.AUDIT_ARCH_I386, func(p *filter) {
			p.unless(unix.BPF_JEQ, unix.AUDIT_ARCH_X86_64, func(p *filter) { p.fail(unix.ENOSYS) })
			p.load(offsetNumber)
			const x32 = 0x40000000
			p.when(unix.BPF_JGE, x32, func(p *filter) { p.fail(unix.ENOSYS) })
			p.apply(func(r rule) uint32 { return r.native })
		})
		p.load(offsetNumber)
		p.apply(func(r rule) uint32 { return r.i386 })
	case "arm64":
		p.load(offsetArchitecture)
		p.unless(unix.BPF_JEQ, unix.AUDIT_ARCH_AARCH64, func(p *filter) { p.fail(unix.ENOSYS) })
		p.load(offsetNumber)
		p.apply(func(r rule) uint32 { return r.native })
	}
	var out bytes.Buffer
	_ = binary.Write(&out, binary.NativeEndian, []unix.SockFilter(p)) // writing to memory does not fail
	return out.Bytes()
}

// filter is a program of the classic Berkeley Packet Filter.
type filter []unix.SockFilter

func (p *filter) add(code uint16, k uint32) { *p = append(*p, unix.SockFilter{Code: code, K: k}) }

func (p *filter) load(offset uint32) { p.add(unix.BPF_LD|unix.BPF_W|unix.BPF_ABS, offset) }
func (p *filter) allow()             { p.add(unix.BPF_RET|unix.BPF_K, unix.SECCOMP_RET_ALLOW) }
func (p *filter) fail(errno unix.Errno) {
	p.add(unix.BPF_RET|unix.BPF_K, unix.SECCOMP_RET_ERRNO|uint32(errno))
}

// when adds what do adds, to be executed if the loaded value compares with value, and skipped if
// not.
func (p *filter) when(compare uint16, value uint32, do func(*filter)) {
	p.branch(unix.SockFilter{Code: unix.BPF_JMP | compare | unix.BPF_K, K: value, Jt: 1}, do)
}

// unless is the reverse.
func (p *filter) unless(compare uint16, value uint32, do func(*filter)) {
	p.branch(unix.SockFilter{Code: unix.BPF_JMP | compare | unix.BPF_K, K: value, Jf: 1}, do)
}

// branch adds a test that jumps over the next instruction, which is a jump over what do adds. A
// test itself cannot jump over more than 255 instructions.
func (p *filter) branch(test unix.SockFilter, do func(*filter)) {
	var body filter
	do(&body)
	*p = append(*p, test, unix.SockFilter{Code: unix.BPF_JMP | unix.BPF_JA, K: uint32(len(body))})
	*p = append(*p, body...)
}

// apply ends the program with the rules for a call whose number is loaded.
func (p *filter) apply(number func(rule) uint32) {
	for _, r := range rules {
		if n := number(r); n != 0 {
			p.when(unix.BPF_JEQ, n, r.outcome)
		}
	}
	p.allow()
}

// outcome ends the program for a call to which the rule applies.
func (r rule) outcome(p *filter) {
	fail := func(p *filter) { p.fail(r.errno) }
	if r.only == nil {
		fail(p)
		return
	}
	listed, other := fail, (*filter).allow
	if r.only.not {
		listed, other = other, listed
	}
	p.load(offsetArgument)
	p.add(unix.BPF_ALU|unix.BPF_AND|unix.BPF_K, r.only.mask)
	for _, v := range r.only.values {
		p.when(unix.BPF_JEQ, v, listed)
	}
	other(p)
}
