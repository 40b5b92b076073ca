// Package published runs tasks that others have published, in their images and unchanged: with
// their own solutions, and with an agent that does nothing.
//
// EVALRUN_PUBLISHED_ISOLATION=docker runs them in containers of a Docker daemon, which the tests start and which gets the
// base images from podman. It shares neither files nor the network with this machine; EVALRUN_DOCKER_FORM=bare is one
// that does. A daemon that DOCKER_HOST names must have the base images under the names of the lab's base.sh.
// EVALRUN_PUBLISHED_TASKS chooses folders.
package published
