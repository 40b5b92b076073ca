// Package published runs tasks that others have published, in their images and unchanged: with
// their own solutions, and with an agent that does nothing.
//
// EVALRUN_PUBLISHED_ISOLATION=docker runs them in the daemon of DOCKER_HOST, to which the base images are given once:
//
//	podman save localhost/evalrun-lab:python | docker load
//	for name in ubuntu:24.04 python:3.11-slim …; do docker tag localhost/evalrun-lab:python $name; done
//
// with the names of the lab's base.sh. EVALRUN_PUBLISHED_TASKS chooses folders. In a daemon whose containers have no
// internet those can be solved that need none for their images and tests: hello-user, hello-workdir,
// hello-multi-step-simple and separate-verifier-environment.
package published
