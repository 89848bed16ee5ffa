package import Glibc
package import LinuxSystem

/// The user and groups of a program.
package struct ProcessIdentity: Sendable, Hashable {
    package var user: uid_t
    package var group: gid_t
    package var otherGroups: [gid_t]

    /// More groups are not recorded, though the kernel allows four times as many.
    package static let mostGroups = 16_384

    package init(user: uid_t, group: gid_t, otherGroups: [gid_t]) {
        self.user = user
        self.group = group
        self.otherGroups = otherGroups
    }

    /// The identity of this process.
    package static func own() throws(SystemError) -> ProcessIdentity {
        var groups = [gid_t](repeating: 0, count: 65_536)
        let count = try systemCall("getgroups") { unsafe getgroups(CInt(groups.count), &groups) }
        return ProcessIdentity(
            user: geteuid(), group: getegid(), otherGroups: Array(groups.prefix(Int(count))))
    }
}

/// The uid that the kernel checks.
func currentUser() -> uid_t { geteuid() }
