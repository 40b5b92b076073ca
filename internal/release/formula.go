package main

import (
	"fmt"
	"strings"
)

// formula is the Homebrew formula, which installs from the archives of the release.
func (r *release) formula(sums map[target]string) []byte {
	var b strings.Builder
	fmt.Fprintf(&b, "class Evalrun < Formula\n  desc %q\n  homepage %q\n  version %q\n", summary, homepage, r.semver())
	for _, system := range []struct{ os, on string }{{"darwin", "macos"}, {"linux", "linux"}} {
		fmt.Fprintf(&b, "\n  on_%s do\n", system.on)
		for _, arch := range []struct{ arch, on string }{{"arm64", "arm"}, {"amd64", "intel"}} {
			t := target{system.os, arch.arch}
			if sums[t] != "" {
				fmt.Fprintf(&b, "    on_%s do\n      url \"%s/releases/download/%s/%s.tar.gz\"\n      sha256 %q\n    end\n",
					arch.on, homepage, r.version, t, sums[t])
			}
		}
		b.WriteString("  end\n")
	}
	b.WriteString(`
  def install
    bin.install "evalrun"
    man1.install Dir["man/*.1"]
    bash_completion.install "completions/evalrun.bash" => "evalrun"
    zsh_completion.install "completions/_evalrun"
    fish_completion.install "completions/evalrun.fish"
    pkgshare.install Dir["inside/*"]
  end

  test do
    assert_match version.to_s, shell_output("#{bin}/evalrun version")
  end
end
`)
	return []byte(b.String())
}

// nfpm is the configuration with which nfpm makes the packages for Debian, Red Hat and Alpine.
func (r *release) nfpm(t target) []byte {
	return fmt.Appendf(nil, `name: evalrun
arch: %s
platform: linux
version: %q
section: devel
maintainer: evalrun <maintainers@evalrun.invalid>
homepage: %s
description: |
  %s
mtime: %[6]s
contents:
  - {src: %[5]s/%[7]s, dst: /usr/bin/evalrun, file_info: {mode: 0755, mtime: %[6]s}}
  - {src: %[8]s/man/*.1, dst: /usr/share/man/man1/, file_info: {mode: 0644, mtime: %[6]s}}
  - {src: %[8]s/completions/evalrun.bash, dst: /usr/share/bash-completion/completions/evalrun, file_info: {mode: 0644, mtime: %[6]s}}
  - {src: %[8]s/completions/_evalrun, dst: /usr/share/zsh/site-functions/_evalrun, file_info: {mode: 0644, mtime: %[6]s}}
  - {dst: /usr/share/evalrun, type: dir, file_info: {mode: 0755, mtime: %[6]s}}
  - {src: %[8]s/inside/*, dst: /usr/share/evalrun/, file_info: {mode: 0755, mtime: %[6]s}}
  - {src: %[8]s/completions/evalrun.fish, dst: /usr/share/fish/vendor_completions.d/evalrun.fish, file_info: {mode: 0644, mtime: %[6]s}}
rpm:
  buildhost: reproducible
`, t.arch, r.semver(), homepage, summary, r.dist, r.date.UTC().Format("2006-01-02T15:04:05Z"), t, r.share)
}
