package import Glibc
package import Launching
import LinuxSystem

/// Looks up users and groups.
package protocol Accounts: Sendable {
    /// Nil if there is no user of that name or number.
    func user(_ name: String) -> Account?
    /// Nil if there is no group of that name; a number is valid, known or not.
    func group(_ name: String) -> gid_t?
    /// The user for which manifests are read.
    var reader: uid_t { get }
}

/// A user's entry in the account database.
package struct Account: Sendable, Hashable {
    package var name: String
    package var identity: ProcessIdentity
    package var home: String
    package var shell: String

    package init(name: String, identity: ProcessIdentity, home: String, shell: String) {
        self.name = name
        self.identity = identity
        self.home = home
        self.shell = shell
    }
}

/// The account database of this machine (`getpwnam_r(3)`), which may be slow if it is remote.
package struct SystemAccounts: Accounts {
    package init() {}

    package var reader: uid_t { geteuid() }

    package func user(_ name: String) -> Account? {
        var room = [CChar](repeating: 0, count: 65_536)
        var entry = unsafe passwd()
        var found: UnsafeMutablePointer<passwd>?
        let code: CInt
        if let number = Self.number(name) {
            code = unsafe getpwuid_r(number, &entry, &room, room.count, &found)
        } else {
            code = unsafe getpwnam_r(name, &entry, &room, room.count, &found)
        }
        guard code == 0, unsafe found != nil else { return nil }
        let login = unsafe String(cString: entry.pw_name)
        var groups = [gid_t](repeating: 0, count: 65_536)
        var count = CInt(groups.count)
        guard unsafe getgrouplist(login, entry.pw_gid, &groups, &count) >= 0 else { return nil }
        let identity = unsafe ProcessIdentity(
            user: entry.pw_uid, group: entry.pw_gid, otherGroups: Array(groups.prefix(Int(count))))
        return unsafe Account(
            name: login, identity: identity, home: String(cString: entry.pw_dir),
            shell: String(cString: entry.pw_shell))
    }

    /// A uid or gid. The largest number means "unchanged" to the kernel.
    package static func number(_ text: String) -> UInt32? {
        guard text.utf8.allSatisfy({ (UInt8(ascii: "0")...UInt8(ascii: "9")).contains($0) }) else {
            return nil
        }
        return UInt32(text).flatMap { $0 == .max ? nil : $0 }
    }

    package func group(_ name: String) -> gid_t? {
        if let number = Self.number(name) { return number }
        var room = [CChar](repeating: 0, count: 1 << 20)
        var entry = unsafe Glibc.group()
        var found: UnsafeMutablePointer<Glibc.group>?
        guard unsafe getgrnam_r(name, &entry, &room, room.count, &found) == 0, unsafe found != nil else {
            return nil
        }
        return unsafe entry.gr_gid
    }
}
