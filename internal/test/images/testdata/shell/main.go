// Command shell stands for bash in an image that has nothing else. "put FILE TEXT" writes a file;
// "have FILE" ends with status 1 if the file does not exist.
package main

import (
	"os"
	"strings"
)

func main() {
	script, err := os.ReadFile(os.Args[1])
	if err != nil {
		panic(err)
	}
	for line := range strings.Lines(string(script)) {
		words := strings.Fields(line)
		switch words[0] {
		case "put":
			err = os.WriteFile(words[1], []byte(words[2]), 0o644)
		case "have":
			_, err = os.Stat(words[1])
		}
		if err != nil {
			panic(err)
		}
	}
}
