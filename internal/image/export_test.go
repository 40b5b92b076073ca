package image

// RunRoot is the folder in /run of a storage, which a test removes.
var RunRoot = runRoot
