import Glibc

/// A directory below `/dev` for the names of devices. Needs root. It is there from the first use to the end
/// of the process: a monitor may watch `/dev` itself, and must not be disturbed while a test measures whether
/// it runs. Such a test uses this first.
package let deviceDirectory: String = {
    let path = "/dev/nightbell-test-\(getpid())"
    mkdir(path, 0o755)
    atexit { rmdir(deviceDirectory) }
    return path
}()
