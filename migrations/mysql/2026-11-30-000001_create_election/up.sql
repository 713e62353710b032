-- Names that differ in any byte are different names: binary collation.
-- Instants are UTC with microseconds.
CREATE TABLE IF NOT EXISTS gemstone_election_candidate (
    ns VARCHAR(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
    candidate_id VARCHAR(36) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
    last_heartbeat_at DATETIME(6) NOT NULL,
    expires_at DATETIME(6) NOT NULL,
    PRIMARY KEY (ns, candidate_id)
) ENGINE = InnoDB;
CREATE TABLE IF NOT EXISTS gemstone_election_leader (
    ns VARCHAR(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
    leader_id VARCHAR(36) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NULL,
    lease_expires_at DATETIME(6) NULL,
    updated_at DATETIME(6) NOT NULL,
    PRIMARY KEY (ns)
) ENGINE = InnoDB;
