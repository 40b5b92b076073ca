// Package images runs tasks in their images, through the built program. It checks what agent and
// verifier see, as whom they run, and what a suspension keeps. Its images are built from nothing
// but a small root.
package images
