-- Tables that something else created may round instants and fold case: make them exact.
ALTER TABLE gemstone_election_candidate
    ENGINE = InnoDB,
    MODIFY ns VARCHAR(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
    MODIFY candidate_id VARCHAR(36) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
    MODIFY last_heartbeat_at DATETIME(6) NOT NULL,
    MODIFY expires_at DATETIME(6) NOT NULL;
ALTER TABLE gemstone_election_leader
    ENGINE = InnoDB,
    MODIFY ns VARCHAR(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
    MODIFY leader_id VARCHAR(36) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NULL,
    MODIFY lease_expires_at DATETIME(6) NULL,
    MODIFY updated_at DATETIME(6) NOT NULL;

-- The fencing token. MySQL commits each of these statements on its own, so a
-- second run after a crash must find nothing left to do.
SET @leasehold_ddl = (
    SELECT IF(COUNT(*) = 0,
              'ALTER TABLE gemstone_election_leader ADD COLUMN term BIGINT NOT NULL DEFAULT 0',
              'DO 0')
    FROM information_schema.columns
    WHERE table_schema = DATABASE()
      AND table_name = 'gemstone_election_leader'
      AND column_name = 'term'
);
PREPARE leasehold_ddl FROM @leasehold_ddl;
EXECUTE leasehold_ddl;
DEALLOCATE PREPARE leasehold_ddl;

-- Who led when. Written only in the transaction that changes leadership.
CREATE TABLE IF NOT EXISTS gemstone_election_tenure (
    ns VARCHAR(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
    term BIGINT NOT NULL,
    leader_id VARCHAR(36) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
    began_at DATETIME(6) NOT NULL,
    ended_at DATETIME(6) NULL,
    ended_by VARCHAR(16) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NULL,
    PRIMARY KEY (ns, term)
) ENGINE = InnoDB;
