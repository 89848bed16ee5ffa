import Glibc
import LinuxSystem

/// The cgroups that a supervisor with this runtime directory has made and not removed.
package func cgroupsLeft(by runtimeDirectory: String) -> [String] {
    guard let noted = try? SmallFile.readText(runtimeDirectory + "/cgroups") else { return [] }
    return noted.split(separator: "\n").map { String($0) }.filter { access($0, F_OK) == 0 }
}
