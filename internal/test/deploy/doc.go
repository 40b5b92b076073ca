// Package deploy checks the files of the folder deploy: that the program has what they name, and with the virtual
// environment of the stage of that name (.ci/run deploy) that they follow the schemas of Kubernetes, KEDA and compose
// files. It holds only tests.
package deploy
