import Glibc

extension HelperProgram {
    /// The monitor's program for a user's session. PipeWire and the session's bus talk to processes of that
    /// user alone, so it becomes that user; nil: it cannot.
    func session(of user: uid_t) -> HelperProgram? {
        var program = self
        program.identity = nil
        program.arguments = ["--session"]
        guard user != geteuid() else { return program }
        guard geteuid() == 0 else { return nil }
        program.arguments += ["--user", "\(user)"]
        program.environment["XDG_RUNTIME_DIR"] = "/run/user/\(user)"
        program.environment["DBUS_SESSION_BUS_ADDRESS"] = nil
        return program
    }
}
